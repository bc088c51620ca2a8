// PNG decoding; this file is the only user of libpng. Uses its simplified interface, which returns errors; the full
// interface would longjmp out of C++ functions.
#include <string_view>

#include "bitgrad/base/error.h"
#include "bitgrad/data/picture.h"

#if BITGRAD_WITH_PNG
#include <png.h>
#endif

namespace bitgrad {

#if BITGRAD_WITH_PNG

Picture decode_png(const std::vector<uint8_t>& file) {
  struct Image : png_image {
    Image() : png_image{} { version = PNG_IMAGE_VERSION; }
    ~Image() { png_image_free(this); }
    void require_ok(int ok) const {
      // Color profiles are not applied, so a warning about one alone does not mean damage.
      const bool of_profile = warning_or_error == 1 && std::string_view(message).starts_with("iCCP");
      if (ok == 0 || (warning_or_error != 0 && !of_profile))
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

#else

Picture decode_png(const std::vector<uint8_t>&) {
  fail("picture",
       "this program was built without libpng, which PNG files need. Install libpng-dev and build it again.");
}

#endif

}  // namespace bitgrad
