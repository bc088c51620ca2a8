// Counts and sums over positions: exact integers, and doubles in one order, docs/numerics.md section 10. Pieces of 256
// in ascending order, then pieces of 256 of those, until one number is left.
#pragma once

#include "kernels/map/pointwise.h"
#include "ops/map/list.h"

namespace bitgrad::maps {

inline constexpr int64_t kTotalPiece = 256;

// Elements of piece i of n.
struct PieceOf {
  int64_t begin, end;
};
BITGRAD_HD inline PieceOf piece_of(int64_t i, int64_t n) {
  const int64_t begin = i * kTotalPiece, end = begin + kTotalPiece;
  return {begin, end < n ? end : n};
}

// How many targets are not `ignore`.
struct CountTargets {
  const int32_t* targets;
  int64_t n;
  int32_t ignore;
  int64_t* out;

  BITGRAD_HD void operator()(int64_t i) const {
    const PieceOf piece = piece_of(i, n);
    int64_t count = 0;
    for (int64_t k = piece.begin; k < piece.end; ++k) count += targets[k] != ignore ? 1 : 0;
    out[i] = count;
  }
};

// How many ranks are below k.
struct CountRanks {
  const int32_t* ranks;
  int64_t n, k;
  int64_t* out;

  BITGRAD_HD void operator()(int64_t i) const {
    const PieceOf piece = piece_of(i, n);
    int64_t count = 0;
    for (int64_t j = piece.begin; j < piece.end; ++j) count += ranks[j] < k ? 1 : 0;
    out[i] = count;
  }
};

struct SumCounts {
  const int64_t* counts;
  int64_t n;
  int64_t* out;

  BITGRAD_HD void operator()(int64_t i) const {
    const PieceOf piece = piece_of(i, n);
    int64_t sum = 0;
    for (int64_t k = piece.begin; k < piece.end; ++k) sum += counts[k];
    out[i] = sum;
  }
};

// fp32 terms in double.
struct SumTerms {
  const float* terms;
  int64_t n;
  double* out;

  BITGRAD_HD void operator()(int64_t i) const {
    const PieceOf piece = piece_of(i, n);
    double sum = 0;
    for (int64_t k = piece.begin; k < piece.end; ++k) sum += static_cast<double>(terms[k]);
    out[i] = sum;
  }
};

// (y - t)^2 of fp32 or bf16 elements, in double.
struct SumSquaredErrors {
  const void *y, *t;
  bool bf16_y, bf16_t;
  int64_t n;
  double* out;

  BITGRAD_HD void operator()(int64_t i) const {
    const PieceOf piece = piece_of(i, n);
    double sum = 0;
    for (int64_t k = piece.begin; k < piece.end; ++k) {
      const double d = static_cast<double>(load_float(y, bf16_y, k)) - static_cast<double>(load_float(t, bf16_t, k));
      sum += d * d;
    }
    out[i] = sum;
  }
};

struct SumDoubles {
  const double* in;
  int64_t n;
  double* out;

  BITGRAD_HD void operator()(int64_t i) const {
    const PieceOf piece = piece_of(i, n);
    double sum = 0;
    for (int64_t k = piece.begin; k < piece.end; ++k) sum += in[k];
    out[i] = sum;
  }
};

// out = *number / *count; flags get bit 1 where nothing was counted. Index: 0.
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
