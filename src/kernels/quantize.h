// Family quantize: values to codes with given scales, codes to values, and the straight-through mask. docs/numerics.md
// sections 2, 3, 7.
#pragma once

#include "bitgrad/base/rng.h"
#include "bitgrad/kernels/kernel.h"
#include "bitgrad/kernels/quantize_rules.h"
#include "kernels/elementwise.h"

namespace bitgrad {

// Bit that kernels OR into the flag word of a tensor.
inline constexpr uint32_t kFlagNonFinite = 1u;

}  // namespace bitgrad

namespace bitgrad::kernels {

struct QuantizeArgs {
  int64_t rows = 0, cols = 0;
  FloatsIn x = {};  // fp32 or bf16: codes, mask and flags are those of the widened values
  int64_t ldx = 0;  // elements
  DType dtype = dtypes::int8;
  void* codes = nullptr;  // canonical rows; pad bits are zeroed
  int64_t stride = 0;     // bytes
  CodeRule rule = CodeRule::kInverse;
  int64_t lo = 0, hi = 0;  // clamp of the code (absmax: -qmax, qmax); ignored by sign and codebook kinds
  ScaleMap scale;          // in coordinates of x
  // Stochastic rounding (int and uint kinds) of u, the rule's result before rint, plus z: v = clamp(u, lo-1, hi+1),
  // i = 2^k * rint(v * 2^(16-k)), q = clamp((i + r16) >> 16); k = 3 for 256 codes, one less for half as many, at
  // least 0.
  const RandomStream* sr = nullptr;
  int64_t first_element = 0;  // draw index of x[0][0]; row r starts at first_element + r * cols
  SteRule ste = SteRule::kIdentity;
  // Optional, [rows][(cols+63)/64] words. kClip: code before the clamp in [lo, hi] (kSign, kPositive: abs x <= 1);
  // other rules: all ones. Pad bits are zero.
  uint64_t* mask = nullptr;
  uint32_t* flags =
      nullptr;  // OR of kFlagNonFinite if an x is NaN or Inf; such an x gets code 0 (the raw code of value 0, or raw 0)
  // Optional, [rows], on devices: the sum of each row's codes (GemmOperand::row_sums). For one-bit codes (the number of
  // raw 1) and integers of 8 bits.
  int32_t* row_sums = nullptr;
};
KernelList<Kernel<QuantizeArgs>>& quantize_kernels();
void quantize(const QuantizeArgs& args);
// The clip rule without codes or mask in memory: gx = g where quantize with kClip would set the mask, else +0. g and
// gx: dense [rows, cols]; may alias. Ignores codes, stride, sr, first_element, ste, mask and flags. Not for codebooks.
void clip_gradient(const QuantizeArgs& args, const float* g, float* gx);

struct DequantizeArgs {
  int64_t rows = 0, cols = 0;
  DType dtype = dtypes::int8;
  const void* codes = nullptr;  // canonical
  int64_t stride = 0;           // bytes
  ScaleMap scale;
  float* y = nullptr;
  int64_t ldy = 0;  // elements
};
// y = s * (q - z), s * q or s * q + m, each operation rounded once.
void dequantize(const DequantizeArgs& args);

// int8 codes by scheme absmax (narrow, docs/numerics.md section 2) of one matrix, in up to two orders from one read:
// by_row has one scale per row, by_column one per column. Each first multiplies by `fold` with one rounding: by_row one
// factor per column, by_column one per row. Codes are those of kInverse with lo = -127, hi = 127 on the folded values.
struct Int8Order {
  const float* fold = nullptr;       // fp32 factors; nullptr: 1
  float* scales = nullptr;           // output: max(max abs of the folded values / 127, 2^-126)
  int8_t* codes = nullptr;           // output: [rows, cols] in both orders; nullptr: this order is not wanted
  int64_t stride = 0;                // bytes between rows of codes
  const RandomStream* sr = nullptr;  // draw of element first_element + r * cols + c; nullptr: round to nearest even
  int64_t first_element = 0;
  bool turned = false;  // by_column on a device: codes are [cols, rows], so that rows are contiguous for its product
};
struct Int8OrdersArgs {
  int64_t rows = 0, cols = 0;
  const void* x = nullptr;  // fp32 or bf16, dense
  bool bf16 = false;
  Int8Order by_row, by_column;
  uint32_t* flags = nullptr;  // OR of kFlagNonFinite if a folded value is not finite
};
// Returns false if a folded value is NaN or Inf; scales and codes may then be unwritten or partly written. On a device,
// returns true and sets `flags`.
bool quantize_int8_orders(const Int8OrdersArgs& args);

// Sequences of kernels fused into one read of x. The CPU runs the sequence; the bits are the same.

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
