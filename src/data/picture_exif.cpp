#include "data/picture_files.h"

#include <algorithm>

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
