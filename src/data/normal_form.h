// Unicode normalization forms (UAX #15, libutf8proc).
#pragma once

#include <string>
#include <string_view>

namespace bitgrad::data {

// `form`: NFC, NFD, NFKC or NFKD. Invalid UTF-8 bytes are left unchanged. Without libutf8proc, throws Error if `text`
// is not ASCII.
std::string normal_form(std::string_view text, std::string_view form);

}  // namespace bitgrad::data
