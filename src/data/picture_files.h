// PNG files (ISO/IEC 15948): encodes pictures, 8 bits per channel, without filters; takes passes apart. EXIF.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/data/picture.h"

namespace bitgrad::data {

// pixels: [rows, columns, channels] bytes; channels: 1 (gray) or 3 (red, green, blue). Returns the bytes of the file.
std::string png_bytes(const uint8_t* pixels, int64_t rows, int64_t columns, int64_t channels);
// A PNG file of lines, each with the number of its filter before it. `depth`: bits of a sample; `color`: PNG's number
// of the color type; `level`: of zlib.
std::string png_file(int64_t rows, int64_t columns, int depth, int color, const std::string& lines, int level);

// Pictures that come in seven passes (Adam7, PNG section 8.2; png.cpp).
// Whether the header of a PNG says 16-bit samples in passes, which libpng 1.6.39 takes apart wrongly where it makes
// 8-bit ones of them.
bool has_wide_passes(const std::vector<uint8_t>& png);
// The same picture line by line. `png`: of has_wide_passes, and its chunks are known to be whole. Throws Error(kData)
// where its lines are not what its header says.
std::string without_passes(const std::vector<uint8_t>& png);

// The orientation of pictures that EXIF records, as cameras write it, and what is done about it.

// The orientation (1 .. 8) in a TIFF structure: what follows "Exif\0\0" in the APP1 segment of a JPEG, and the content
// of eXIf in a PNG. 1 where there is none, or where the structure is damaged.
int exif_orientation(std::span<const uint8_t> tiff);
// The picture as it is meant to be seen: mirrored and turned.
Picture upright(Picture picture, int orientation);

}  // namespace bitgrad::data
