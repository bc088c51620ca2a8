// Encodes pictures as PNG files (ISO/IEC 15948), 8 bits per channel, without filters.
#pragma once

#include <cstdint>
#include <string>

namespace bitgrad::data {

// pixels: [rows, columns, channels] bytes; channels: 1 (gray) or 3 (red, green, blue). Returns the bytes of the file.
std::string png_bytes(const uint8_t* pixels, int64_t rows, int64_t columns, int64_t channels);

}  // namespace bitgrad::data
