#include "data/digits.h"

#include <array>
#include <string>

#include "bitgrad/base/error.h"
#include "bitgrad/base/parallel.h"
#include "data/formats.h"
#include "data/image_dataset.h"

namespace bitgrad::data {

namespace {

Glyph parse_glyph(const std::string& text) {
  Glyph glyph;
  TextReader strokes(text);
  for (std::string part; std::getline(strokes, part, ';');) {
    Stroke stroke;
    TextReader points(part);
    int x = 0;
    int y = 0;
    char comma = 0;
    while (points >> x >> comma >> y) {
      stroke.push_back({static_cast<float>(x - 50) / 100.0f, static_cast<float>(y - 50) / 100.0f});
    }
    glyph.push_back(std::move(stroke));
  }
  return glyph;
}

using Table = std::array<std::vector<Glyph>, kDigitClasses>;

Table parse_all() {
  Table table;
#define BITGRAD_DIGIT(label, strokes) table[label].push_back(parse_glyph(strokes));
#include "data/digit_strokes.inc"
#undef BITGRAD_DIGIT
  return table;
}

}  // namespace

const std::vector<Glyph>& digit_glyphs(int label) {
  static const Table table = parse_all();
  return table[static_cast<size_t>(label)];
}

namespace {

constexpr int64_t kMostImages = int64_t{1} << 31;
constexpr int64_t kGrain = 64;  // images per parallel chunk

}  // namespace

std::unique_ptr<Dataset> make_digits_dataset(const DatasetSpec& spec) {
  require(spec.size >= 1 && spec.size <= kMostImages, "data.digits", "size: got ", spec.size, ", expected 1 .. ",
          kMostImages, ".");
  require(spec.split == "train" || spec.split == "test", "data.digits", "split: got '", spec.split,
          "', expected train or test.");
  require(spec.classes == 0 || spec.classes == kDigitClasses, "data.digits", "classes: got ", spec.classes,
          ", expected ", kDigitClasses, ".");
  PixelValues(spec).check(1);
  const uint32_t split = spec.split == "train" ? 0 : 1;
  TrackedBytes pixels(spec.size * kDigitPixels, MemoryKind::kDataset);
  TrackedBytes labels(spec.size, MemoryKind::kDataset);
  parallel_ranges(spec.size, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      labels.data()[i] = static_cast<uint8_t>(draw_digit(spec.seed, split, i, pixels.data() + i * kDigitPixels));
    }
  });
  return std::make_unique<ImageDataset>(concat("digits (", spec.split, ")"),
                                        std::vector<int64_t>{kDigitSide, kDigitSide}, kDigitClasses, PixelValues(spec),
                                        std::move(pixels), std::move(labels));
}

}  // namespace bitgrad::data
