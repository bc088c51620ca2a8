// Arrays of fp32 or bf16 as the fp32 that loops compute with: bf16 is converted piece by piece.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bitgrad/base/parallel.h"
#include "kernels/elementwise/loops.h"
#include "kernels/floats.h"

namespace bitgrad::kernels {

inline constexpr int64_t kFloatPiece = 1024;  // elements converted at a time; a multiple of 64

// Elements [at, at + n) as fp32, converted to `space` if they are bf16.
inline const float* read_floats(const FloatsIn& x, int64_t at, int64_t n, float* space) {
  if (!x.bf16()) return x.fp32() + at;
  elementwise::loops().from_bf16(n, static_cast<const uint16_t*>(x.data) + at, space);
  return space;
}
// Where to compute elements from `at` on: in place, or in `space` if they are bf16; write_floats() then stores them.
inline float* place_floats(const FloatsOut& y, int64_t at, float* space) { return y.bf16() ? space : y.fp32() + at; }
inline void write_floats(const FloatsOut& y, int64_t at, int64_t n, const float* space) {
  if (y.bf16()) elementwise::loops().to_bf16(n, space, static_cast<uint16_t*>(y.data) + at);
}

// Calls body(i, count) for consecutive pieces of n elements.
template <typename Body>
void for_pieces(int64_t n, Body&& body) {
  for (int64_t i = 0; i < n; i += kFloatPiece) body(i, std::min(kFloatPiece, n - i));
}

// How the matrix kernels of families elementwise, quantize and pack cut their work: by shape only.

inline constexpr int64_t kTileElements = 16384;  // a multiple of 64, so that no cut splits a word of packed codes

// Calls body(r, c0, c1) for every row r and column range [c0, c1) of a [rows, cols] matrix; c0 is a multiple of
// kTileElements. Short rows share a task.
template <typename Body>
void for_row_tiles(int64_t rows, int64_t cols, Body&& body) {
  if (rows <= 0) return;
  const int64_t pieces = cols <= kTileElements ? 1 : (cols + kTileElements - 1) / kTileElements;
  const int64_t width = pieces == 1 ? (cols > 0 ? cols : 1) : kTileElements;
  parallel_ranges(rows * pieces, (kTileElements + width - 1) / width, [&](int64_t begin, int64_t end) {
    if (pieces == 1) {  // avoids a division per row
      for (int64_t r = begin; r < end; ++r) body(r, int64_t{0}, cols);
      return;
    }
    for (int64_t t = begin; t < end; ++t) {
      const int64_t c0 = (t % pieces) * kTileElements;
      const int64_t c1 = c0 + kTileElements;
      body(t / pieces, c0, c1 < cols ? c1 : cols);
    }
  });
}

// The same cuts for loops that iterate over rows themselves. body(r0, r1, c0, c1) receives either whole rows r0 .. r1
// (c0 = 0, c1 = cols) or a range of columns of a single row.
template <typename Body>
void for_row_blocks(int64_t rows, int64_t cols, Body&& body) {
  if (cols > kTileElements)
    return for_row_tiles(rows, cols, [&](int64_t r, int64_t c0, int64_t c1) { body(r, r + 1, c0, c1); });
  const int64_t width = cols > 0 ? cols : 1;
  parallel_ranges(rows, (kTileElements + width - 1) / width,
                  [&](int64_t begin, int64_t end) { body(begin, end, int64_t{0}, cols); });
}

// Runs body(begin, end) for each cut of n elements.
template <typename Body>
void cut(int64_t n, Body&& body) {
  parallel_ranges(n, kTileElements, body);
}

}  // namespace bitgrad::kernels
