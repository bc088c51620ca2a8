// Arrays of fp32 or bf16 as the fp32 that loops compute with: bf16 is converted piece by piece.
#pragma once

#include <algorithm>

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

}  // namespace bitgrad::kernels
