// Encodes pictures as PNG files (ISO/IEC 15948), 8 bits per channel, without filters.
#pragma once

#include <cstdint>
#include <string>

namespace bitgrad::data {

// pixels: [rows, columns, channels] bytes; channels: 1 (gray) or 3 (red, green, blue). Returns the bytes of the file.
std::string png_bytes(const uint8_t* pixels, int64_t rows, int64_t columns, int64_t channels);
// A PNG file of lines, each with the number of its filter before it. `depth`: bits of a sample; `color`: PNG's number
// of the color type; `level`: of zlib.
std::string png_file(int64_t rows, int64_t columns, int depth, int color, const std::string& lines, int level);

}  // namespace bitgrad::data
