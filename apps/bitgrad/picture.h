// Pictures in PNG and JPEG files, as bytes: decoded, made gray or colored, resized. For `bitgrad data pack`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bitgrad::cli {

struct Picture {
  int64_t rows = 0, columns = 0, channels = 0;  // channels: 1 gray, 3 red, green, blue
  std::vector<uint8_t> bytes;                   // [rows, columns, channels]
};

inline constexpr int64_t kMostPixels = int64_t{1} << 26;  // of a picture that is decoded

// Each throws Error(kData) whose text says what was found and what was expected, without the path.
// By its first bytes. Error(kUsage) where the program was built without the library that reads it.
Picture decode_picture(const std::vector<uint8_t>& file);
// Samples of 16 bits become 8, palettes colors; alpha is dropped; a gamma that is not that of sRGB is converted
// to 1/2.2.
Picture decode_png(const std::vector<uint8_t>& file);
// Gray, YCbCr and RGB. The orientation in EXIF data is not applied.
Picture decode_jpeg(const std::vector<uint8_t>& file);

// Gray to three equal channels; color to L = (19595 R + 38470 G + 7471 B + 32768) >> 16 (ITU-R BT.601).
Picture with_channels(Picture picture, int64_t channels);
// Each axis by itself, in exact integers, rounded once at the end, halves up. From n to m < n: the mean over the area
// of a new pixel, [i n/m, (i+1) n/m). From n to m >= n: linear between the two nearest centers, at (i + 1/2) n/m - 1/2,
// clamped to the centers at the edges.
Picture resized(const Picture& picture, int64_t rows, int64_t columns);

}  // namespace bitgrad::cli
