// JPEG decoding; this file is the only user of libjpeg. The library reports errors by longjmp, so functions that it may
// jump out of must not hold objects with destructors.
#include "bitgrad/base/error.h"
#include "bitgrad/data/picture.h"

#if BITGRAD_WITH_JPEG
#include <csetjmp>
#include <cstdio>
// Must follow cstdio, whose FILE it uses.
#include <jerror.h>
#include <jpeglib.h>
#endif

namespace bitgrad {

#if BITGRAD_WITH_JPEG
namespace {

struct JpegReader {
  jpeg_decompress_struct jpeg{};
  jpeg_error_mgr errors{};
  std::jmp_buf back{};
  char message[JMSG_LENGTH_MAX] = {};

  JpegReader() {
    jpeg.err = jpeg_std_error(&errors);
    jpeg.client_data = this;
    errors.error_exit = [](j_common_ptr common) { stop(common); };
    errors.emit_message = [](j_common_ptr common, int level) {
      // For missing data the decoder fills in gray, so that is an error. Other warnings do not affect the picture.
      const int code = common->err->msg_code;
      if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER)) stop(common);
    };
    errors.output_message = [](j_common_ptr) {};
  }
  ~JpegReader() { jpeg_destroy_decompress(&jpeg); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  [[noreturn]] static void stop(j_common_ptr common) {
    auto* const self = static_cast<JpegReader*>(common->client_data);
    common->err->format_message(common, self->message);
    std::longjmp(self->back, 1);
  }
  bool read_header(const uint8_t* file, size_t bytes) {
    if (setjmp(back) != 0) return false;
    jpeg_create_decompress(&jpeg);
    jpeg.client_data = this;
    jpeg_mem_src(&jpeg, file, bytes);
    jpeg_read_header(&jpeg, TRUE);
    return true;
  }
  bool read_rows(uint8_t* to, size_t row_bytes) {
    if (setjmp(back) != 0) return false;
    jpeg_start_decompress(&jpeg);
    while (jpeg.output_scanline < jpeg.output_height) {
      JSAMPROW row = to + jpeg.output_scanline * row_bytes;
      jpeg_read_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_decompress(&jpeg);
    return true;
  }
};

}  // namespace

Picture decode_jpeg(const std::vector<uint8_t>& file) {
  JpegReader reader;
  const auto damaged = [&] {
    fail_with(ErrorCode::kData, "picture", "damaged JPEG: got '", reader.message, "', expected a whole picture");
  };
  if (!reader.read_header(file.data(), file.size())) damaged();
  jpeg_decompress_struct& jpeg = reader.jpeg;
  const int64_t rows = jpeg.image_height, columns = jpeg.image_width;
  if (rows * columns > kMostPixels)
    fail_with(ErrorCode::kData, "picture", "JPEG: got ", rows, " x ", columns, " pixels, expected at most ",
              kMostPixels);
  const bool gray = jpeg.jpeg_color_space == JCS_GRAYSCALE;
  if (!gray && jpeg.jpeg_color_space != JCS_YCbCr && jpeg.jpeg_color_space != JCS_RGB)
    fail_with(ErrorCode::kData, "picture",
              "JPEG: got CMYK or another color space, expected gray or color (YCbCr, RGB)");
  jpeg.out_color_space = gray ? JCS_GRAYSCALE : JCS_RGB;
  jpeg.dct_method = JDCT_ISLOW;
  const int64_t channels = gray ? 1 : 3;
  Picture out{rows, columns, channels, std::vector<uint8_t>(static_cast<size_t>(rows * columns * channels))};
  if (!reader.read_rows(out.bytes.data(), static_cast<size_t>(columns * channels))) damaged();
  return out;
}

#else

Picture decode_jpeg(const std::vector<uint8_t>&) {
  fail("picture",
       "this program was built without libjpeg, which JPEG files need. Install libjpeg62-turbo-dev (Debian) or "
       "libjpeg-turbo8-dev (Ubuntu) and build it again.");
}

#endif

}  // namespace bitgrad
