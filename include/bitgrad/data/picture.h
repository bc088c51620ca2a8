// Pictures in PNG and JPEG files, as bytes: decoded, made gray or colored, resized; and folders of them, a class each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bitgrad {

struct Picture {
  int64_t rows = 0, columns = 0, channels = 0;  // channels: 1 gray, 3 red, green, blue
  std::vector<uint8_t> bytes = {};              // [rows, columns, channels]
};

inline constexpr int64_t kMostPixels = int64_t{1} << 26;  // of a picture that is decoded

// Each throws Error(kData) whose text says what was found and what was expected, without the path.
// By its first bytes. Error(kUsage) where the library was built without what reads it (libpng, libjpeg).
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

// A file of a class.
struct PictureFile {
  std::string path = {};
  int64_t label = 0;
  std::string wrong = {};  // why it cannot be used; empty: nothing is known to be wrong
};
struct PictureFolder {
  std::vector<std::string> classes = {};  // in the order of their numbers
  std::vector<PictureFile> files = {};    // by class, then by name
};
inline constexpr int64_t kMostPictureClasses = 65536;

// The classes of a folder, one a sub-folder: their names, sorted by bytes. Names that begin with a dot are passed over.
// Error(kData) that begins with `where` for a folder that is missing or has no sub-folder.
std::vector<std::string> picture_classes(std::string_view where, const std::string& folder);
// The files of each sub-folder; a folder in a class is listed with what is `wrong`. classes: those that may stand in
// the folder and their numbers; empty: what picture_classes says. Error(kData) also for a class that is not among them
// (`of` says whose they are), an empty class, and more than kMostPictureClasses.
PictureFolder list_pictures(std::string_view where, const std::string& folder, std::vector<std::string> classes = {},
                            const std::string& of = {});
// The picture in a file, as it is stored; channels: 1 or 3 converts it, 0 does not. Throws as decode_picture, and for a
// file that cannot be read.
Picture read_picture(const std::string& path, int64_t channels = 0);

}  // namespace bitgrad
