// Files from a network.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace bitgrad::cli {

// Fetches `url` (http or https, redirections followed) into the file `part`, which becomes `bytes` long. What `part`
// holds already is its beginning: only the rest is asked for, or all of it from a server that gives no parts. Returns
// an empty text, or why it failed; `part` then keeps a beginning that another try can go on with, and is gone where it
// is none. on_bytes is told how long `part` is. Errors of the disk are thrown as the file system throws them.
std::string download(const std::string& url, const std::string& part, int64_t bytes,
                     const std::function<void(int64_t)>& on_bytes);

}  // namespace bitgrad::cli
