// Scales, zero points and gradients gy as needed by the backward products of a linear layer. docs/numerics.md section
// 5; src/ops/product/fold.h.
#pragma once

#include "bitgrad/dtype/bf16.h"
#include "ops/map/list.h"

namespace bitgrad::maps {

// Gathers scales and zero points along the rows of a stored matrix, for one column: out[i] = in[i / group * step + at].
struct GatherAlong {
  const float* scale;  // nullptr if there are none
  const int32_t* zero;
  int64_t group, step, at;
  float* scale_out;
  int32_t* zero_out;

  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t j = i / group * step + at;
    if (scale != nullptr) scale_out[i] = scale[j];
    if (zero != nullptr) zero_out[i] = zero[j];
  }
};

// gy [rows, cols], fp32 or bf16, times one factor per column, or one per row (transposed).
struct FoldedNumbers {
  const void* gy;
  bool bf16, transposed;
  int64_t cols;
  const float* fold;  // nullptr means 1

  BITGRAD_HD float at(int64_t r, int64_t c) const {
    const int64_t i = r * cols + c;
    const float x = bf16 ? bf16_to_float(static_cast<const uint16_t*>(gy)[i]) : static_cast<const float*>(gy)[i];
    return fold == nullptr ? x : x * fold[transposed ? r : c];
  }
};

// Rounds to bf16, nearest even. Index: element.
struct FoldToBf16 {
  FoldedNumbers x;
  uint16_t* out;

  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t r = i / x.cols;
    out[i] = bf16_from_float(x.at(r, i - r * x.cols));
  }
};

// Atomically adds an exact integer.
BITGRAD_HD inline void add_exact(int64_t* sum, int64_t part) {
#if defined(__CUDA_ARCH__)
  atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(part));
#else
  __atomic_fetch_add(sum, part, __ATOMIC_RELAXED);
#endif
}

// out[f] += sum of q[f,k] * zero[k] over a part of kZerosPerPart contracted indices k. q is int8 [rows, cols]; if
// transposed, f runs over its columns. Index: part * free + f, where `free` is the number of indices f.
inline constexpr int64_t kZerosPerPart = 256;
struct SumWithZeros {
  const int8_t* q;
  int64_t stride, free, contracted;
  bool transposed;
  const int32_t* zero;
  int64_t* out;

  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t part = i / free, f = i - part * free;
    const int64_t begin = part * kZerosPerPart, end = begin + kZerosPerPart;
    int64_t total = 0;
    for (int64_t k = begin; k < end && k < contracted; ++k)
      total += int64_t{transposed ? q[k * stride + f] : q[f * stride + k]} * zero[k];
    add_exact(out + f, total);
  }
};

// Copies columns of packed codes to rows of their own: bits [first, first + count) of every row of `in`, with zero pad
// bits. Index: 64-bit word of the result.
struct CopyBits {
  const uint64_t* in;
  int64_t in_words;  // words per row
  int64_t first, count;
  uint64_t* out;
  int64_t out_words;

  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t r = i / out_words, w = i - r * out_words;
    const int64_t bit = first + w * 64, left = count - w * 64, word = bit / 64;
    const int shift = static_cast<int>(bit % 64);
    const uint64_t* const row = in + r * in_words;
    uint64_t bits = row[word] >> shift;
    if (shift != 0 && word + 1 < in_words) bits |= row[word + 1] << (64 - shift);
    out[i] = left >= 64 ? bits : bits & ((uint64_t{1} << left) - 1);
  }
};

}  // namespace bitgrad::maps
