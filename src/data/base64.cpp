#include "data/base64.h"

#include <algorithm>
#include <cstdint>

#include "bitgrad/base/error.h"

namespace bitgrad::data {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string base64(std::string_view bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t j = i; j < i + 3; ++j) bits = bits << 8 | (j < bytes.size() ? static_cast<uint8_t>(bytes[j]) : 0u);
    for (size_t j = 0; j < 4; ++j) out += i + j <= bytes.size() ? kDigits[bits >> (18 - 6 * j) & 63u] : '=';
  }
  return out;
}

std::string base64_bytes(std::string_view text) {
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  const size_t digits = std::min(text.size(), text.find('='));
  for (const char c : text.substr(0, digits)) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos)
      fail_with(ErrorCode::kData, "base64", "got byte ", static_cast<int>(static_cast<uint8_t>(c)),
                ", expected base64.");
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(static_cast<uint8_t>(bits >> count));
  }
  if (base64(out) != text) fail_with(ErrorCode::kData, "base64", "got an end that is none of base64.");
  return out;
}

}  // namespace bitgrad::data
