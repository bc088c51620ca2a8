#include "bitgrad/data/picture.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "data/picture_files.h"

namespace bitgrad {

namespace {

// Pixel i of a resized axis: the sum of weights[k] times old pixel first + k, divided by the sum of the weights, which
// is the same for all i.
struct AxisTap {
  int64_t first;
  std::vector<int64_t> weights;
};
struct Axis {
  std::vector<AxisTap> taps;
  int64_t sum;
};

Axis axis_of(int64_t from, int64_t to) {
  Axis axis{{}, from > to ? from : 2 * to};
  for (int64_t i = 0; i < to; ++i) {
    AxisTap tap{};
    if (from > to) {  // weights in units of 1/to of an old pixel
      const int64_t begin = i * from, end = begin + from;
      tap.first = begin / to;
      for (int64_t j = tap.first; j * to < end; ++j)
        tap.weights.push_back(std::min(end, (j + 1) * to) - std::max(begin, j * to));
    } else {  // weights in units of 1/(2 to)
      const int64_t place = std::clamp<int64_t>((2 * i + 1) * from - to, 0, 2 * to * (from - 1));
      tap.first = place / (2 * to);
      const int64_t part = place % (2 * to);
      tap.weights.push_back(2 * to - part);
      if (part > 0) tap.weights.push_back(part);
    }
    axis.taps.push_back(std::move(tap));
  }
  return axis;
}

}  // namespace

Picture decode_picture(const std::vector<uint8_t>& file) {
  const auto begins = [&](std::initializer_list<uint8_t> magic) {
    return file.size() >= magic.size() && std::equal(magic.begin(), magic.end(), file.begin());
  };
  if (begins({0x89, 'P', 'N', 'G', 0x0D, 0x0A, 0x1A, 0x0A})) return decode_png(file);
  if (begins({0xFF, 0xD8, 0xFF})) return decode_jpeg(file);
  if (const auto kind = known_file_kind({reinterpret_cast<const char*>(file.data()), file.size()}))
    fail_with(ErrorCode::kData, "picture", "got ", kind->name, ", expected a PNG or JPEG file. ", kind->way_out);
  fail_with(ErrorCode::kData, "picture", file.empty() ? "the file is empty" : "got neither a PNG nor a JPEG file",
            ", expected one of them");
}

Picture with_channels(Picture picture, int64_t channels) {
  if (picture.channels == channels) return picture;
  const int64_t pixels = picture.rows * picture.columns;
  Picture out{picture.rows, picture.columns, channels, std::vector<uint8_t>(static_cast<size_t>(pixels * channels))};
  for (int64_t p = 0; p < pixels; ++p) {
    const uint8_t* const from = picture.bytes.data() + p * picture.channels;
    uint8_t* const to = out.bytes.data() + p * channels;
    if (channels == 3)
      std::fill_n(to, 3, from[0]);
    else
      to[0] = static_cast<uint8_t>((19595u * from[0] + 38470u * from[1] + 7471u * from[2] + 32768u) >> 16);
  }
  return out;
}

Picture resized(const Picture& picture, int64_t rows, int64_t columns) {
  if (picture.rows == rows && picture.columns == columns) return picture;
  const int64_t c = picture.channels;
  const Axis down = axis_of(picture.rows, rows), right = axis_of(picture.columns, columns);
  std::vector<int64_t> wide(static_cast<size_t>(picture.rows * columns * c));  // resized along the rows
  for (int64_t y = 0; y < picture.rows; ++y)
    for (int64_t x = 0; x < columns; ++x) {
      const AxisTap& tap = right.taps[static_cast<size_t>(x)];
      for (size_t k = 0; k < tap.weights.size(); ++k)
        for (int64_t i = 0; i < c; ++i)
          wide[static_cast<size_t>((y * columns + x) * c + i)] +=
              tap.weights[k] *
              picture.bytes[static_cast<size_t>((y * picture.columns + tap.first + static_cast<int64_t>(k)) * c + i)];
    }
  Picture out{rows, columns, c, std::vector<uint8_t>(static_cast<size_t>(rows * columns * c))};
  const int64_t whole = down.sum * right.sum;
  std::vector<int64_t> row(static_cast<size_t>(columns * c));
  for (int64_t y = 0; y < rows; ++y) {
    const AxisTap& tap = down.taps[static_cast<size_t>(y)];
    std::fill(row.begin(), row.end(), whole / 2);
    for (size_t k = 0; k < tap.weights.size(); ++k) {
      const int64_t* const from = wide.data() + (tap.first + static_cast<int64_t>(k)) * columns * c;
      for (int64_t i = 0; i < columns * c; ++i) row[static_cast<size_t>(i)] += tap.weights[k] * from[i];
    }
    for (int64_t i = 0; i < columns * c; ++i)
      out.bytes[static_cast<size_t>(y * columns * c + i)] = static_cast<uint8_t>(row[static_cast<size_t>(i)] / whole);
  }
  return out;
}

}  // namespace bitgrad

namespace bitgrad::data {

namespace {

constexpr uint32_t kUpright = 1, kLast = 8;

class Tiff {
 public:
  explicit Tiff(std::span<const uint8_t> bytes) : bytes_(bytes), big_(!bytes.empty() && bytes[0] == 'M') {}
  // 0 beyond the end.
  uint32_t number(size_t at, size_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at) return 0;
    uint32_t out = 0;
    for (size_t i = 0; i < size; ++i) out = (out << 8) | bytes_[at + (big_ ? i : size - 1 - i)];
    return out;
  }

 private:
  std::span<const uint8_t> bytes_;
  bool big_;
};

}  // namespace

int exif_orientation(std::span<const uint8_t> bytes) {
  constexpr uint32_t kMagic = 42, kOrientation = 0x0112, kShort = 3, kLong = 4;
  constexpr size_t kEntry = 12;
  const Tiff tiff(bytes);
  if (bytes.size() < 8 || bytes[0] != bytes[1] || (bytes[0] != 'I' && bytes[0] != 'M') || tiff.number(2, 2) != kMagic)
    return kUpright;
  const size_t entries = tiff.number(4, 4);
  for (size_t i = 0, n = tiff.number(entries, 2); i < n; ++i) {
    const size_t at = entries + 2 + i * kEntry;
    const uint32_t type = tiff.number(at + 2, 2);
    if (tiff.number(at, 2) != kOrientation || (type != kShort && type != kLong)) continue;
    const uint32_t value = tiff.number(at + 8, type == kLong ? 4 : 2);
    return value >= kUpright && value <= kLast ? static_cast<int>(value) : kUpright;
  }
  return kUpright;
}

Picture upright(Picture picture, int orientation) {
  if (orientation == int{kUpright}) return picture;
  // Pixel (y, x) is that of (x, y) in orientations 5 to 8, then of the end of an axis where it is mirrored.
  const bool turned = orientation >= 5;
  const bool mirror_rows = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  const bool mirror_columns = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  const int64_t c = picture.channels;
  Picture out{turned ? picture.columns : picture.rows, turned ? picture.rows : picture.columns, c,
              std::vector<uint8_t>(picture.bytes.size())};
  for (int64_t y = 0; y < out.rows; ++y)
    for (int64_t x = 0; x < out.columns; ++x) {
      const int64_t row = mirror_rows ? out.rows - 1 - y : y, column = mirror_columns ? out.columns - 1 - x : x;
      const int64_t from = turned ? column * picture.columns + row : row * picture.columns + column;
      std::copy_n(picture.bytes.data() + from * c, c, out.bytes.data() + (y * out.columns + x) * c);
    }
  return out;
}

}  // namespace bitgrad::data
