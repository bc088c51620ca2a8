// Normal forms of Unicode (UAX #15, libutf8proc).
#pragma once

#include <string>
#include <string_view>

namespace bitgrad::data {

// `form`: NFC, NFD, NFKC or NFKD. Bytes that are no UTF-8 stay. Error for a build without libutf8proc where `text` is
// not ASCII.
std::string normal_form(std::string_view text, std::string_view form);

}  // namespace bitgrad::data
