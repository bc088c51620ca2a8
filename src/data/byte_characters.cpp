#include "data/byte_characters.h"

#include <cstdint>

namespace bitgrad::data {

std::array<std::string, 256> byte_characters() {
  std::array<std::string, 256> all;
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const uint32_t point = itself ? byte : next++;
    std::string& c = all[byte];
    if (point >= 0x80) c += static_cast<char>(0xC0 | (point >> 6));
    c += static_cast<char>(point < 0x80 ? point : 0x80 | (point & 0x3F));
  }
  return all;
}

}  // namespace bitgrad::data
