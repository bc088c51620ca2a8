// Family quantize: kernels that fuse a sequence of kernels into one read of x. The CPU runs the sequence; same bits.
#pragma once

#include "bitgrad/kernels/elementwise.h"
#include "bitgrad/kernels/quantize.h"

namespace bitgrad::kernels {

// quantize(args), and the same codes as layout `transposed` of a [rows, cols] matrix, written whole.
void quantize_transposed(const QuantizeArgs& args, void* transposed);

// Rows of numbers to bits x >= 0 in both orders, with what a product of bits needs beside them.
struct BinarizeArgs {
  int64_t rows = 0, cols = 0;
  const float* x = nullptr;
  int64_t ldx = 0;             // elements
  void* codes = nullptr;       // bint1, canonical rows, pad bits are zeroed
  int64_t stride = 0;          // bytes
  void* transposed = nullptr;  // optional: bint1 as layout `transposed`, written whole
  float* alpha = nullptr;      // optional, one a row: max(mean abs x, eps), mean in the order of reduce; not written
                               // without columns
  float eps = 0x1p-126f;
  int32_t* row_ones = nullptr;      // optional, one a row: the number of +1
  int32_t* column_ones = nullptr;   // optional, one a column
  uint32_t* flags = nullptr;        // OR of kFlagNonFinite where x is NaN or Inf; its code is raw 0
  uint32_t* alpha_flags = nullptr;  // OR of kFlagNonFinite where an alpha is NaN or Inf
};
void binarize(const BinarizeArgs& args);

// The signs of normalize(norm): bint1 codes of y >= 0, without y in memory. norm.y is not read.
struct NormalizeSignArgs {
  NormalizeArgs norm;
  void* codes = nullptr;        // canonical rows, pad bits are zeroed
  int64_t stride = 0;           // bytes
  uint32_t* flags = nullptr;    // OR of kFlagNonFinite where y is NaN or Inf; its code is raw 0
  int32_t* row_ones = nullptr;  // optional, one a row: the number of +1
};
void normalize_sign(const NormalizeSignArgs& args);

}  // namespace bitgrad::kernels
