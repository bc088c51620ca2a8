// Downloads files over HTTP.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace bitgrad::cli {

// Downloads `url` (http or https, following redirections) into the file `part`, whose complete length is `bytes`. What
// `part` already contains is taken as the beginning: only the rest is requested, or everything if the server does not
// support ranges. Returns an empty text, or why it failed. After a failure `part` holds a beginning from which another
// attempt can continue, or does not exist. Calls on_bytes with the length of `part`. Disk errors are thrown as the file
// system throws them.
std::string download(const std::string& url, const std::string& part, int64_t bytes,
                     const std::function<void(int64_t)>& on_bytes);

}  // namespace bitgrad::cli
