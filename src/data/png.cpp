#include "data/picture_files.h"

#include <zlib.h>

#include <string_view>

#include "bitgrad/base/error.h"

namespace bitgrad::data {
namespace {

std::string big_endian(uint32_t x) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(x >> shift & 0xFFU);
  return out;
}

std::string chunk(std::string_view name, const std::string& content) {
  const std::string body = std::string(name) + content;
  const uLong crc = crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big_endian(static_cast<uint32_t>(content.size())) + body + big_endian(static_cast<uint32_t>(crc));
}

}  // namespace

std::string png_file(int64_t rows, int64_t columns, int depth, int color, const std::string& lines, int level) {
  uLongf size = compressBound(static_cast<uLong>(lines.size()));
  std::string packed(size, '\0');
  const int code = compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                             reinterpret_cast<const Bytef*>(lines.data()), static_cast<uLong>(lines.size()), level);
  ensure(code == Z_OK, "png", "zlib compresses what has room");
  packed.resize(size);
  const std::string header =
      big_endian(static_cast<uint32_t>(columns)) + big_endian(static_cast<uint32_t>(rows)) +
      std::string{static_cast<char>(depth), static_cast<char>(color), 0, 0, 0};  // deflate, PNG filters, no interlace
  return "\x89PNG\r\n\x1A\n" + chunk("IHDR", header) + chunk("IDAT", packed) + chunk("IEND", "");
}

std::string png_bytes(const uint8_t* pixels, int64_t rows, int64_t columns, int64_t channels) {
  ensure((channels == 1 || channels == 3) && rows > 0 && columns > 0, "png", "1 or 3 channels and at least a pixel");
  const auto line = static_cast<size_t>(columns * channels);
  std::string raw;
  for (int64_t r = 0; r < rows; ++r) {
    raw += '\0';  // filter type of the line: none
    raw.append(reinterpret_cast<const char*>(pixels) + static_cast<size_t>(r) * line, line);
  }
  return png_file(rows, columns, 8, channels == 1 ? 0 : 2, raw, Z_BEST_COMPRESSION);  // gray or RGB
}

}  // namespace bitgrad::data
