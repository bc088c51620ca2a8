#include <zlib.h>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "bitgrad/base/error.h"
#include "data/picture_files.h"

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

namespace {

struct Pass {
  int64_t x, y, dx, dy;  // of its first pixel, and to the next
};
constexpr std::array<Pass, 7> kPasses{
    {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4}, {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}}};

// Places in the file: the signature, then the header chunk.
constexpr size_t kChunks = 8, kColumns = 16, kRows = 20, kDepth = 24, kColor = 25, kInterlace = 28, kHeaderEnd = 33;

size_t number_at(const std::vector<uint8_t>& png, size_t at) {
  size_t out = 0;
  for (size_t i = 0; i < 4; ++i) out = out << 8 | png[at + i];
  return out;
}

[[noreturn]] void fail_lines() {
  fail_with(ErrorCode::kData, "picture", "damaged PNG: got lines of other lengths, expected those of its header");
}

std::string unpacked(const std::vector<uint8_t>& png, size_t size) {
  constexpr size_t kAround = 12;  // length, type and checksum of a chunk
  std::vector<uint8_t> packed;
  for (size_t at = kChunks; png.size() - at >= kAround;) {
    const size_t length = number_at(png, at);
    if (length > png.size() - at - kAround) break;
    const auto body = png.begin() + static_cast<std::ptrdiff_t>(at) + 8;
    if (std::string_view(reinterpret_cast<const char*>(&png[at + 4]), 4) == "IDAT")
      packed.insert(packed.end(), body, body + static_cast<std::ptrdiff_t>(length));
    at += length + kAround;
  }
  std::string out(size, '\0');
  auto got = static_cast<uLongf>(size);
  if (uncompress(reinterpret_cast<Bytef*>(out.data()), &got, packed.data(), static_cast<uLong>(packed.size())) !=
          Z_OK ||
      got != size)
    fail_lines();
  return out;
}

uint8_t paeth(int left, int up, int corner) {
  const int guess = left + up - corner;
  const int a = std::abs(guess - left), b = std::abs(guess - up), c = std::abs(guess - corner);
  return static_cast<uint8_t>(a <= b && a <= c ? left : b <= c ? up : corner);
}

// Adds what the filter of a line predicts (PNG section 9.2). `up`: the line before, zeros for the first.
void unfilter(int filter, std::string& line, const std::string& up, size_t pixel) {
  if (filter < 0 || filter > 4) fail_lines();
  const auto of = [](char c) { return static_cast<int>(static_cast<unsigned char>(c)); };
  for (size_t i = 0; i < line.size(); ++i) {
    const int a = i < pixel ? 0 : of(line[i - pixel]), b = of(up[i]), c = i < pixel ? 0 : of(up[i - pixel]);
    const int add = filter == 0 ? 0 : filter == 1 ? a : filter == 2 ? b : filter == 3 ? (a + b) / 2 : paeth(a, b, c);
    line[i] = static_cast<char>(of(line[i]) + add);
  }
}

int64_t count_of(int64_t size, int64_t first, int64_t step) {
  return size <= first ? 0 : (size - first + step - 1) / step;
}

}  // namespace

bool has_wide_passes(const std::vector<uint8_t>& png) {
  return png.size() >= kHeaderEnd && png[kDepth] == 16 && png[kInterlace] == 1;
}

std::string without_passes(const std::vector<uint8_t>& png) {
  const auto rows = static_cast<int64_t>(number_at(png, kRows)),
             columns = static_cast<int64_t>(number_at(png, kColumns));
  const int color = png[kColor];
  const size_t channels = color == 0 ? 1 : color == 2 ? 3 : color == 4 ? 2 : 4, pixel = 2 * channels;
  size_t size = 0;
  for (const Pass& p : kPasses)
    if (const auto n = static_cast<size_t>(count_of(columns, p.x, p.dx)); n > 0)
      size += static_cast<size_t>(count_of(rows, p.y, p.dy)) * (1 + n * pixel);
  const std::string passes = unpacked(png, size);
  const size_t line_bytes = 1 + static_cast<size_t>(columns) * pixel;  // with the filter: none
  std::string out(static_cast<size_t>(rows) * line_bytes, '\0');
  size_t at = 0;
  for (const Pass& p : kPasses) {
    const auto n = static_cast<size_t>(count_of(columns, p.x, p.dx));
    std::string up(n * pixel, '\0');
    for (int64_t y = p.y; n > 0 && y < rows; y += p.dy) {
      std::string line = passes.substr(at + 1, n * pixel);
      unfilter(passes[at], line, up, pixel);
      at += 1 + n * pixel;
      const size_t begin = static_cast<size_t>(y) * line_bytes + 1;
      for (size_t i = 0; i < n; ++i)
        line.copy(&out[begin + (static_cast<size_t>(p.x) + i * static_cast<size_t>(p.dx)) * pixel], pixel, i * pixel);
      up = std::move(line);
    }
  }
  return png_file(rows, columns, 16, color, out, Z_BEST_SPEED);
}

}  // namespace bitgrad::data
