// Family quantize: sequences of kernels fused into one read of x. The CPU runs the sequence; the bits are the same.
#pragma once

#include "kernels/elementwise.h"
#include "kernels/quantize.h"

namespace bitgrad::kernels {

// quantize(args), and also the codes in layout `transposed` of the [rows, cols] matrix, written in full.
void quantize_transposed(const QuantizeArgs& args, void* transposed);

// Quantizes rows of values, fp32 or bf16, to sign bits (x >= 0), in both orders, with the statistics that products of
// bits need.
struct BinarizeArgs {
  int64_t rows = 0, cols = 0;
  FloatsIn x = {};
  int64_t ldx = 0;             // elements
  void* codes = nullptr;       // bint1, canonical rows; pad bits are zeroed
  int64_t stride = 0;          // bytes
  void* transposed = nullptr;  // optional: bint1 in layout `transposed`, written in full
  // Optional, one per row: max(mean abs x, eps), the mean in the order of reduce. Not written if there are no columns.
  float* alpha = nullptr;
  float eps = 0x1p-126f;
  int32_t* row_ones = nullptr;      // optional, one per row: the number of +1
  int32_t* column_ones = nullptr;   // optional, one per column
  uint32_t* flags = nullptr;        // OR of kFlagNonFinite if an x is NaN or Inf, which gets raw code 0
  uint32_t* alpha_flags = nullptr;  // OR of kFlagNonFinite if an alpha is NaN or Inf
};
void binarize(const BinarizeArgs& args);

// Signs of normalize(norm): bint1 codes of y >= 0. norm.x is fp32. y is not materialized; norm.y is not used.
struct NormalizeSignArgs {
  NormalizeArgs norm;
  void* codes = nullptr;        // canonical rows; pad bits are zeroed
  int64_t stride = 0;           // bytes
  uint32_t* flags = nullptr;    // OR of kFlagNonFinite if a y is NaN or Inf, which gets raw code 0
  int32_t* row_ones = nullptr;  // optional, [rows]: the number of +1 in each row
};
void normalize_sign(const NormalizeSignArgs& args);

}  // namespace bitgrad::kernels
