// Bytes as text (RFC 4648, section 4).
#pragma once

#include <string>
#include <string_view>

namespace bitgrad::data {

std::string base64(std::string_view bytes);
// Error(kData) for what base64 does not write.
std::string base64_bytes(std::string_view text);

}  // namespace bitgrad::data
