// PNG decoding; this file is the only user of libpng. Uses its simplified interface, which returns errors; the full
// interface would longjmp out of C++ functions.
#include <algorithm>
#include <span>
#include <string_view>

#include "bitgrad/base/error.h"
#include "bitgrad/data/picture.h"
#include "data/picture_files.h"

#if BITGRAD_WITH_PNG
#include <png.h>
#endif

namespace bitgrad {

#if BITGRAD_WITH_PNG
namespace {

struct PngFile {
  std::vector<uint8_t> bytes;
  int orientation = 1;
};

// The file without its ancillary chunks: libpng would convert by those that tell what the numbers mean as light, and
// warn of damage that does not touch the pixels (transparency is dropped). Damaged lengths end the search, and libpng
// finds them again.
PngFile pixels_of(const std::vector<uint8_t>& file) {
  constexpr size_t kSignature = 8, kAround = 12;  // length, type and checksum of a chunk
  PngFile out;
  size_t at = std::min(kSignature, file.size()), kept = 0;
  while (file.size() - at >= kAround) {
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | file[at + i];
    if (length > file.size() - at - kAround) break;
    const std::string_view type(reinterpret_cast<const char*>(file.data()) + at + 4, 4);
    const size_t end = at + kAround + length;
    if (type == "eXIf") out.orientation = data::exif_orientation(std::span(file).subspan(at + 8, length));
    if (type[0] >= 'a' && type[0] <= 'z') {
      out.bytes.insert(out.bytes.end(), file.begin() + static_cast<std::ptrdiff_t>(kept),
                       file.begin() + static_cast<std::ptrdiff_t>(at));
      kept = end;
    }
    at = end;
    if (type == "IEND") break;
  }
  out.bytes.insert(out.bytes.end(), file.begin() + static_cast<std::ptrdiff_t>(kept), file.end());
  return out;
}

// Without its alpha, and upright as it is stored.
Picture decode_pixels(const std::vector<uint8_t>& file) {
  struct Image : png_image {
    Image() : png_image{} { version = PNG_IMAGE_VERSION; }
    ~Image() { png_image_free(this); }
    void require_ok(int ok) const {
      if (ok == 0 || warning_or_error != 0)
        fail_with(ErrorCode::kData, "picture", "damaged PNG: got '", message, "', expected a whole picture");
    }
  } image;
  image.require_ok(png_image_begin_read_from_memory(&image, file.data(), file.size()));
  const int64_t rows = image.height, columns = image.width;
  if (rows * columns > kMostPixels)
    fail_with(ErrorCode::kData, "picture", "PNG: got ", rows, " x ", columns, " pixels, expected at most ",
              kMostPixels);
  const bool color = (image.format & PNG_FORMAT_FLAG_COLOR) != 0;
  // Requests alpha, so that it can be dropped instead of blended. 16-bit samples are interpreted as sRGB, like 8-bit
  // ones.
  image.format = color ? PNG_FORMAT_RGBA : PNG_FORMAT_GA;
  image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  const int64_t stored = color ? 4 : 2, channels = stored - 1;
  std::vector<uint8_t> pixels(static_cast<size_t>(rows * columns * stored));
  image.require_ok(png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr));
  Picture out{rows, columns, channels, std::vector<uint8_t>(static_cast<size_t>(rows * columns * channels))};
  for (int64_t p = 0; p < rows * columns; ++p)
    for (int64_t c = 0; c < channels; ++c)
      out.bytes[static_cast<size_t>(p * channels + c)] = pixels[static_cast<size_t>(p * stored + c)];
  return out;
}

}  // namespace

Picture decode_png(const std::vector<uint8_t>& given) {
  const PngFile file = pixels_of(given);
  Picture out = decode_pixels(file.bytes);
  if (data::has_wide_passes(file.bytes)) {  // now known to be whole
    const std::string lines = data::without_passes(file.bytes);
    out = decode_pixels({lines.begin(), lines.end()});
  }
  return data::upright(std::move(out), file.orientation);
}

#else

Picture decode_png(const std::vector<uint8_t>&) {
  fail("picture",
       "this program was built without libpng, which PNG files need. Install libpng-dev and build it again.");
}

#endif

}  // namespace bitgrad
