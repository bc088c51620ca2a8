// Pictures from PNG and JPEG files: decoding to bytes, conversion to gray or color, resizing; and folders with one
// sub-folder of pictures per class.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bitgrad {

struct Picture {
  int64_t rows = 0, columns = 0, channels = 0;  // channels: 1 (gray) or 3 (red, green, blue)
  std::vector<uint8_t> bytes = {};              // [rows, columns, channels]
};

inline constexpr int64_t kMostPixels = int64_t{1} << 26;  // limit for decoded pictures

// The decoders throw Error(kData) whose text gives what was found and what was expected, without the path.
// Detects the format by the first bytes. Throws Error(kUsage) if the library was built without the decoder (libpng,
// libjpeg).
Picture decode_picture(const std::vector<uint8_t>& file);
// Converts 16-bit samples to 8 bits and palettes to colors, and drops alpha. Gamma and color profiles are not applied;
// the EXIF orientation is.
Picture decode_png(const std::vector<uint8_t>& file);
// Supports gray, YCbCr, RGB, and CMYK and YCCK, converted to RGB as Pillow does. Color profiles are not applied; the
// EXIF orientation is. More than 100 scans, or 16 * kMostPixels pixels in all scans, are Error(kData).
Picture decode_jpeg(const std::vector<uint8_t>& file);

// Converts gray to three equal channels, and color to L = (19595 R + 38470 G + 7471 B + 32768) >> 16 (ITU-R BT.601).
Picture with_channels(Picture picture, int64_t channels);
// Resizes each axis separately, in exact integers, rounded once at the end, halves up. From n to m < n: the mean over
// the area of the new pixel, [i n/m, (i+1) n/m). From n to m >= n: linear interpolation at (i + 1/2) n/m - 1/2 between
// the two nearest pixel centers, clamped to the centers at the edges.
Picture resized(const Picture& picture, int64_t rows, int64_t columns);

// The names of NAME.classes.txt, one a line, in order of the classes. Throws Error(kData) if it cannot be read.
std::vector<std::string> read_class_names(const std::string& path);

// One file of a class.
struct PictureFile {
  std::string path = {};
  int64_t label = 0;
  std::string wrong = {};  // why the file is unusable; empty if no problem is known
};
struct PictureFolder {
  std::vector<std::string> classes = {};  // in order of their indices
  std::vector<PictureFile> files = {};    // by class, then by name
};
inline constexpr int64_t kMostPictureClasses = 65536;

// Classes of a folder: the names of its sub-folders, sorted bytewise. Skips names that begin with a dot. Throws
// Error(kData) that begins with `where` if the folder is missing or has no sub-folder.
std::vector<std::string> picture_classes(std::string_view where, const std::string& folder);
// Lists the files of each sub-folder; a folder inside a class is listed with `wrong` set. classes: the allowed classes,
// in order of their indices; empty means picture_classes(folder). Also throws Error(kData) for a class that is not in
// the list (`of` says whose list it is), an empty class, and more than kMostPictureClasses classes.
PictureFolder list_pictures(std::string_view where, const std::string& folder, std::vector<std::string> classes = {},
                            const std::string& of = {});
// Reads and decodes a file; channels: 1 or 3 converts the picture, 0 keeps it as stored. Throws as decode_picture, and
// also if the file cannot be read.
Picture read_picture(const std::string& path, int64_t channels = 0);

}  // namespace bitgrad
