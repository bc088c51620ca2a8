// Base64 encoding and decoding (RFC 4648, section 4).
#pragma once

#include <string>
#include <string_view>

namespace bitgrad::data {

std::string base64(std::string_view bytes);
// Throws Error(kData) for text that is not valid base64.
std::string base64_bytes(std::string_view text);

}  // namespace bitgrad::data
