// Counts and sums over positions: exact integers, and doubles in a fixed order, docs/numerics.md section 10. Sums
// pieces of 256 in ascending order, then pieces of 256 of those, until one value is left.
#pragma once

#include "kernels/map/pointwise.h"
#include "ops/map/list.h"

namespace bitgrad::maps {

inline constexpr int64_t kTotalPiece = 256;

// Elements of piece i out of n.
struct PieceOf {
  int64_t begin, end;
};
BITGRAD_HD inline PieceOf piece_of(int64_t i, int64_t n) {
  const int64_t begin = i * kTotalPiece, end = begin + kTotalPiece;
  return {begin, end < n ? end : n};
}

// The sum of f.term(k) over the positions k of piece i, in ascending order.
template <typename F>
BITGRAD_HD auto sum_of_piece(const F& f, int64_t i) {
  const PieceOf piece = piece_of(i, f.n);
  decltype(f.term(0)) sum = 0;
  for (int64_t k = piece.begin; k < piece.end; ++k) sum += f.term(k);
  return sum;
}

// Number of targets that are not `ignore`.
struct CountTargets {
  const int32_t* targets;
  int64_t n;
  int32_t ignore;
  int64_t* out;

  BITGRAD_HD int64_t term(int64_t k) const { return targets[k] != ignore ? 1 : 0; }
  BITGRAD_HD void operator()(int64_t i) const { out[i] = sum_of_piece(*this, i); }
};

// Number of ranks below k.
struct CountRanks {
  const int32_t* ranks;
  int64_t n, k;
  int64_t* out;

  BITGRAD_HD int64_t term(int64_t position) const { return ranks[position] < k ? 1 : 0; }
  BITGRAD_HD void operator()(int64_t i) const { out[i] = sum_of_piece(*this, i); }
};

struct SumCounts {
  const int64_t* counts;
  int64_t n;
  int64_t* out;

  BITGRAD_HD int64_t term(int64_t k) const { return counts[k]; }
  BITGRAD_HD void operator()(int64_t i) const { out[i] = sum_of_piece(*this, i); }
};

// (y - t)^2 of fp32 or bf16 elements, in double.
struct SumSquaredErrors {
  const void *y, *t;
  bool bf16_y, bf16_t;
  int64_t n;
  double* out;

  BITGRAD_HD double term(int64_t k) const {
    const double d = static_cast<double>(load_float(y, bf16_y, k)) - static_cast<double>(load_float(t, bf16_t, k));
    return d * d;
  }
  BITGRAD_HD void operator()(int64_t i) const { out[i] = sum_of_piece(*this, i); }
};

struct SumDoubles {
  const double* in;
  int64_t n;
  double* out;

  BITGRAD_HD double term(int64_t k) const { return in[k]; }
  BITGRAD_HD void operator()(int64_t i) const { out[i] = sum_of_piece(*this, i); }
};

// out = *number / *count; sets bit 1 in flags if the count is 0. Index: 0.
struct DivideByCount {
  const float* number;
  const int64_t* count;
  float* out;
  uint32_t* flags;

  BITGRAD_HD void operator()(int64_t) const {
    if (*count == 0) or_flag(flags, 1u);
    *out = *number / static_cast<float>(*count);
  }
};

}  // namespace bitgrad::maps
