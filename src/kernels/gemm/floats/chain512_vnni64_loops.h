// The loops of float products with B in layout vnni64, shared by the instruction sets. A kernel's file includes this
// inside its target region and its own anonymous namespace, and defines tile_rows. No std:: in here, as in
// table_loops.h.
#pragma once

// What values of B have beside a scale. kAtMostOne: nothing, and |q| <= 1, so that s (q x) is (s q) x; of one row.
enum class Form { kScale, kAtMostOne, kZero, kOffset };

// R rows times all panels of a tile.
template <int fields, Form form, int R>
void tile_rows(const ChainPanelTile& t);

// Calls panels.add_line(b, a, at, codes) for every line of the panels from `panel` on, where `at` is the place of its
// scales, which panels.open_group(at) was told before the first one, and panels.store(first) after each 512 of k and at
// the end.
template <int fields, class Panels>
inline __attribute__((always_inline)) void walk_lines(const ChainPanelTile& t, int panel, Panels& panels) {
  constexpr int64_t kCodes = 4 * fields;
  const uint8_t* b = t.b + int64_t{64} * panel;
  const float* a = t.a;
  int64_t at = 16 * panel, left = t.steps;
  panels.open_group(at);
  for (int64_t k = 0; k < t.k; k += kCodes, a += kCodes, b += int64_t{64} * t.panels) {
    if (left-- == 0) {
      left = t.steps - 1;
      at += kPanelColumns;
      panels.open_group(at);
    }
    if (k + kCodes <= t.k)
      panels.add_line(b, a, at, kCodes);
    else
      panels.add_line(b, a, at, static_cast<int>(t.k - k));
    if ((k + kCodes) % kChainPanel == 0 || k + kCodes >= t.k) panels.store(k < kChainPanel);
  }
}

template <int kMostRows, int fields, Form form>
void tile_form(int rows, const ChainPanelTile& t) {
  if (rows == 1) return tile_rows<fields, form, 1>(t);
  if constexpr (kMostRows == 4) {
    if (rows == 4) return tile_rows<fields, form, 4>(t);
  }
  tile_rows<fields, form, 2>(t);
}

template <int kMostRows, int fields>
void tile_fields(int rows, const ChainPanelTile& t) {
  if (t.zero != nullptr) return tile_form<kMostRows, fields, Form::kZero>(rows, t);
  if (t.offset != nullptr) return tile_form<kMostRows, fields, Form::kOffset>(rows, t);
  if constexpr (fields >= 4) {
    if (t.at_most_one && rows == 1) return tile_rows<fields, Form::kAtMostOne, 1>(t);
  }
  tile_form<kMostRows, fields, Form::kScale>(rows, t);
}

template <int kMostRows>
void tile_bits(int rows, int bits, const ChainPanelTile& t) {
  const int fields = vnni_fields(bits);
  (fields == 1   ? &tile_fields<kMostRows, 1>
   : fields == 2 ? &tile_fields<kMostRows, 2>
   : fields == 4 ? &tile_fields<kMostRows, 4>
                 : &tile_fields<kMostRows, 8>)(rows, t);
}
