// Procedural handwriting-like digits: image i is a pure function of (seed, split, i).
#pragma once

#include <cstdint>
#include <vector>

namespace bitgrad::data {

inline constexpr int kDigitSide = 28;
inline constexpr int kDigitPixels = kDigitSide * kDigitSide;
inline constexpr int kDigitClasses = 10;

struct Point {
  float x;
  float y;
};
using Stroke = std::vector<Point>;
// One way to write a digit: strokes in a 1 x 1 box centered on the origin, y down.
using Glyph = std::vector<Stroke>;

// The glyphs of each class (digit_strokes.inc).
const std::vector<Glyph>& digit_glyphs(int label);

// Draws image `index` (0 .. 2^39-1) of `split` (0 train, 1 test) to pixels [28, 28] and returns its label 0..9.
// Produces the same bytes on every machine: uses only sums, products, quotients, square roots and comparisons.
int draw_digit(uint64_t seed, uint32_t split, int64_t index, uint8_t* pixels);

}  // namespace bitgrad::data
