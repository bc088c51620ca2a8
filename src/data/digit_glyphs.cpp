#include <array>
#include <string>

#include "bitgrad/base/error.h"
#include "data/digits.h"

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

}  // namespace bitgrad::data
