// JPEG decoding; this file is the only user of libjpeg. The library reports errors by longjmp, so functions that it may
// jump out of must not hold objects with destructors.
#include <algorithm>
#include <span>
#include <string_view>

#include "bitgrad/base/error.h"
#include "bitgrad/data/picture.h"
#include "data/picture_files.h"

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

constexpr unsigned kMostMarker = 0xFFFF;
// Ordinary progressive files have about 10 scans; libjpeg-turbo advises 100 at most. Each costs all pixels, so pictures
// of many pixels may have fewer: 16 of kMostPixels.
constexpr int kMostScans = 100;
constexpr int64_t kMostScanned = 16 * kMostPixels;

struct JpegReader {
  jpeg_decompress_struct jpeg{};
  jpeg_error_mgr errors{};
  std::jmp_buf back{};
  jpeg_progress_mgr progress{};
  char message[JMSG_LENGTH_MAX] = {};
  int most_scans = kMostScans;
  bool scans = false;  // too many

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
    progress.progress_monitor = [](j_common_ptr common) {
      auto* const self = static_cast<JpegReader*>(common->client_data);
      if (self->jpeg.input_scan_number <= self->most_scans) return;
      self->scans = true;
      std::longjmp(self->back, 1);
    };
    jpeg.progress = &progress;
    jpeg_save_markers(&jpeg, JPEG_APP0 + 1, kMostMarker);
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

int orientation_of(const jpeg_decompress_struct& jpeg) {
  constexpr std::string_view kExif("Exif\0\0", 6);
  for (const jpeg_marker_struct* m = jpeg.marker_list; m != nullptr; m = m->next) {
    const std::span<const uint8_t> data(m->data, m->data_length);
    if (m->marker == JPEG_APP0 + 1 && data.size() > kExif.size() &&
        std::equal(kExif.begin(), kExif.end(), data.begin(),
                   [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; }))
      return data::exif_orientation(data.subspan(kExif.size()));
  }
  return 1;
}

// Ink to light, as Pillow does: JPEG stores 255 minus the ink (Adobe's convention).
Picture of_ink(const Picture& ink) {
  const int64_t pixels = ink.rows * ink.columns;
  Picture out{ink.rows, ink.columns, 3, std::vector<uint8_t>(static_cast<size_t>(pixels * 3))};
  for (int64_t p = 0; p < pixels; ++p) {
    const uint8_t* const from = ink.bytes.data() + p * 4;
    const uint32_t light = from[3];
    for (int64_t c = 0; c < 3; ++c) {
      const uint32_t product = (255u - from[c]) * light + 128u, part = ((product >> 8) + product) >> 8;
      out.bytes[static_cast<size_t>(p * 3 + c)] = static_cast<uint8_t>(light - std::min(light, part));
    }
  }
  return out;
}

}  // namespace

Picture decode_jpeg(const std::vector<uint8_t>& file) {
  JpegReader reader;
  const auto damaged = [&] {
    if (reader.scans)
      fail_with(ErrorCode::kData, "picture", "damaged JPEG: got more than ", reader.most_scans,
                " scans, expected at most as many");
    fail_with(ErrorCode::kData, "picture", "damaged JPEG: got '", reader.message, "', expected a whole picture");
  };
  if (!reader.read_header(file.data(), file.size())) damaged();
  jpeg_decompress_struct& jpeg = reader.jpeg;
  const int64_t rows = jpeg.image_height, columns = jpeg.image_width;
  if (rows * columns > kMostPixels)
    fail_with(ErrorCode::kData, "picture", "JPEG: got ", rows, " x ", columns, " pixels, expected at most ",
              kMostPixels);
  reader.most_scans = static_cast<int>(std::clamp<int64_t>(kMostScanned / (rows * columns), 1, kMostScans));
  const bool gray = jpeg.jpeg_color_space == JCS_GRAYSCALE;
  const bool ink = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
  if (!gray && !ink && jpeg.jpeg_color_space != JCS_YCbCr && jpeg.jpeg_color_space != JCS_RGB)
    fail_with(ErrorCode::kData, "picture", "JPEG: got ", jpeg.num_components,
              " components of an unknown color space, expected gray, color (YCbCr, RGB) or ink (CMYK, YCCK)");
  jpeg.out_color_space = gray ? JCS_GRAYSCALE : ink ? JCS_CMYK : JCS_RGB;
  jpeg.dct_method = JDCT_ISLOW;
  const int64_t channels = gray ? 1 : ink ? 4 : 3;
  const int orientation = orientation_of(jpeg);
  Picture out{rows, columns, channels, std::vector<uint8_t>(static_cast<size_t>(rows * columns * channels))};
  if (!reader.read_rows(out.bytes.data(), static_cast<size_t>(columns * channels))) damaged();
  return data::upright(ink ? of_ink(out) : std::move(out), orientation);
}

#else

Picture decode_jpeg(const std::vector<uint8_t>&) {
  fail("picture",
       "this program was built without libjpeg, which JPEG files need. Install libjpeg62-turbo-dev (Debian) or "
       "libjpeg-turbo8-dev (Ubuntu) and build it again.");
}

#endif

}  // namespace bitgrad
