// Family rowwise: softmax, layer and RMS normalization, cross-entropy and arg max over the rows of a dense [rows, cols]
// matrix. docs/numerics.md section 10.
//
// Elements are fp32 or bf16 (widened on load, rounded once to nearest even on store). Everything in between is fp32,
// each operation rounded once, with exp and log of base/math.h and sums in the order of section 8 (chunks of 1024, 16
// lanes). A result thus depends only on its own row, not on other rows, the ISA, the threads or the device. fp64 is for
// references, on the CPU only: then every float array is fp64, sums are sequential and exp is that of the C library. A
// matrix-sized output may alias an input of equal dtype unless stated otherwise.
#pragma once

#include "kernels/floats.h"

namespace bitgrad::kernels {

// y = exp(x - max x) / sum exp(x - max x). A row that contains NaN or +Inf, or only -Inf, becomes NaN.
struct SoftmaxRowsArgs {
  int64_t rows = 0, cols = 0;
  FloatsIn x = {};
  FloatsOut y = {};
};
void softmax_rows(const SoftmaxRowsArgs& args);

// gx = y * (gy - sum gy * y). gx is fp32.
struct SoftmaxRowsBackwardArgs {
  int64_t rows = 0, cols = 0;
  FloatsIn y = {}, gy = {};
  FloatsOut gx = {};
};
void softmax_rows_backward(const SoftmaxRowsBackwardArgs& args);

// Layer norm (Ba, Kiros and Hinton 2016, arXiv 1607.06450, equation 3), or RMS norm (Zhang and Sennrich 2019, arXiv
// 1910.07467, equation 4) with mean = 0 if `centered` is false:
//   mean = sum x / cols;  inv = 1 / sqrt(sum (x - mean)^2 / cols + eps);  y = ((x - mean) * inv) * gamma + beta
struct NormRowsArgs {
  int64_t rows = 0, cols = 0;
  FloatsIn x = {};
  bool centered = true;
  float eps = 1e-5f;
  FloatsIn gamma = {}, beta = {};  // [cols], not bf16; beta is optional
  FloatsOut y = {};
  FloatsOut mean = {}, inv = {};  // [rows], not bf16; mean is written only if `centered`
};
void norm_rows(const NormRowsArgs& args);

// With xhat = (x - mean) * inv and h = gy * gamma:
//   gx = ((h - sum h / cols) - xhat * (sum h * xhat / cols)) * inv, without `sum h / cols` unless `centered`
//   ggamma[c] = sum gy * xhat, gbeta[c] = sum gy, down the rows
// gx, ggamma and gbeta are not bf16; each is optional.
struct NormRowsBackwardArgs {
  int64_t rows = 0, cols = 0;
  FloatsIn x = {}, gy = {};
  bool centered = true;
  FloatsIn gamma = {}, mean = {}, inv = {};
  FloatsOut gx = {}, ggamma = {}, gbeta = {};
};
void norm_rows_backward(const NormRowsBackwardArgs& args);

// Softmax cross-entropy of each row with an integer target:
//   top = max x;  total = sum exp(x - top);  loss = log(total) - (x[target] - top)
// A row whose target is `ignore` has loss +0. Any other target outside [0, cols) ORs kFlagNoClass into `flags` and is
// treated as 0.
inline constexpr uint32_t kFlagNoClass = 1u;
struct CrossEntropyRowsArgs {
  int64_t rows = 0, cols = 0;
  FloatsIn x = {};
  const int32_t* targets = nullptr;  // [rows]
  int32_t ignore = -1;
  FloatsOut loss = {}, top = {}, total = {};  // [rows], not bf16
  uint32_t* flags = nullptr;
};
void cross_entropy_rows(const CrossEntropyRowsArgs& args);

// gx = (exp(x - top) / total - (c == target)) * factor; +0 in ignored rows. gx is not bf16.
struct CrossEntropyRowsBackwardArgs {
  int64_t rows = 0, cols = 0;
  FloatsIn x = {};
  const int32_t* targets = nullptr;
  int32_t ignore = -1;
  FloatsIn top = {}, total = {};
  FloatsIn factor = {};  // one value, not bf16
  FloatsOut gx = {};
};
void cross_entropy_rows_backward(const CrossEntropyRowsBackwardArgs& args);

// rank[r] = number of elements of row r that precede x[target]: those that are larger, NaN, or equal with a lower
// index. Rank 0 means that the target is the arg max; a rank below 5, that it is in the top 5. An ignored row, or one
// whose x[target] is NaN, has rank kNoRank. Targets as for cross_entropy_rows.
inline constexpr int32_t kNoRank = INT32_MAX;
struct TargetRanksArgs {
  int64_t rows = 0, cols = 0;
  FloatsIn x = {};
  const int32_t* targets = nullptr;
  int32_t ignore = -1;
  int32_t* rank = nullptr;  // [rows]
  uint32_t* flags = nullptr;
};
void target_ranks(const TargetRanksArgs& args);

}  // namespace bitgrad::kernels
