// Family quantize: numbers -> codes by given scales, codes -> numbers, and the straight-through mask. docs/numerics.md
// sections 2, 3, 7.
#pragma once

#include "bitgrad/base/rng.h"
#include "bitgrad/kernels/kernel.h"

namespace bitgrad {

// How a number becomes a code, before the clamp to [lo, hi]. rint is to nearest even, in fp32.
// s, m: QuantizeArgs::scale.scale and .offset.
enum class CodeRule : uint8_t {
  kInverse,    // rint(x * (1/s)) + z             affine, symmetric, absmax
  kDivide,     // rint(x / s) + z; no scale: rint(x)   ternary absmean
  kOffset,     // rint((x - m) / s)               fixed, minmax_offset, LSQ+, DoReFa gradients
  kTimes,      // rint(x * s)                     DoReFa activations: s is the number of steps, 2^b - 1
  kTanh,       // rint(s * (tanh x / (2m) + 1/2)) DoReFa weights: s the number of steps, m = max abs tanh x
  kSign,       // x >= 0 -> +1, else -1           binary (kind sign)
  kAtLeast,    // x >= m -> +1, else -1           standardized_binary (kind sign): m the mean
  kPositive,   // x > 0 -> 1, else 0              step (int1)
  kThreshold,  // sign of x where abs x > m, else 0          TWN: m the threshold
  kCodebook,   // nearest level of x * (1/s), ties to the lower
};

// Whether a rule rounds to integers, so that it can do so stochastically.
constexpr bool rounds(CodeRule rule) {
  return rule == CodeRule::kInverse || rule == CodeRule::kDivide || rule == CodeRule::kOffset ||
         rule == CodeRule::kTimes || rule == CodeRule::kTanh;
}

// Straight-through rules (section 3). The mask has one bit an element: 1 = the gradient passes.
enum class SteRule : uint8_t { kIdentity, kClip, kApproxSign, kTanh, kNone };

// How scales (and offsets) are rounded once they are found, before zero points and codes. Section 2, "Modifiers".
struct ScaleRounding {
  bool pow2 = false;  // s -> 2^ceil(log2 s)
  bool fp16 = false;  // s -> the nearest fp16 number, at least 2^-24; m -> the nearest; Inf where that is beyond 65504
  friend bool operator==(const ScaleRounding&, const ScaleRounding&) = default;
};

// Bits that kernels OR into a tensor's flag word.
inline constexpr uint32_t kFlagNonFinite = 1u;

}  // namespace bitgrad

namespace bitgrad::kernels {

struct QuantizeArgs {
  int64_t rows = 0, cols = 0;
  const float* x = nullptr;
  int64_t ldx = 0;  // elements
  DType dtype = dtypes::int8;
  void* codes = nullptr;  // canonical rows, pad bits are zeroed
  int64_t stride = 0;     // bytes
  CodeRule rule = CodeRule::kInverse;
  int64_t lo = 0, hi = 0;            // clamp of the code (absmax: -qmax, qmax); sign and codebook ignore it
  ScaleMap scale;                    // in coordinates of x
  const RandomStream* sr = nullptr;  // stochastic rounding (int and uint kinds): v = clamp(u, lo-1, hi+1), i = floor(v
                                     // * 65536), q = clamp((i + r16) >> 16); u = the rule's number before rint, z added
  int64_t first_element = 0;         // element index of x[0][0] for the draws; row r starts at first_element + r * cols
  SteRule ste = SteRule::kIdentity;
  uint64_t* mask = nullptr;  // optional, [rows][(cols+63)/64] words; kClip: code before the clamp in [lo, hi] (kSign,
                             // kPositive: abs x <= 1); else ones; pad bits zero
  uint32_t* flags =
      nullptr;  // OR of kFlagNonFinite where x is NaN or Inf; such x gets code 0 (the raw code of number 0, or raw 0)
  // Optional, on devices only, of codes of one bit: [rows], the number of raw 1 of each row (GemmOperand::row_sums).
  int32_t* row_sums = nullptr;
};
std::span<const Kernel<QuantizeArgs>> quantize_kernels();
void register_quantize_kernels(std::span<const Kernel<QuantizeArgs>> kernels);  // of another device
void quantize(const QuantizeArgs& args);
// Rule clip without codes and mask between: gx = g where the mask of quantize with kClip would be set, else +0. g, gx:
// dense [rows, cols], may be the same. Not read: codes, stride, sr, first_element, ste, mask, flags. Not for codebooks.
void clip_gradient(const QuantizeArgs& args, const float* g, float* gx);

struct DequantizeArgs {
  int64_t rows = 0, cols = 0;
  DType dtype = dtypes::int8;
  const void* codes = nullptr;  // canonical
  int64_t stride = 0;
  ScaleMap scale;
  float* y = nullptr;
  int64_t ldy = 0;
};
// y = s * (q - z), s * q or s * q + m; each operation rounded once.
void dequantize(const DequantizeArgs& args);

// int8 codes by scheme absmax (narrow, docs/numerics.md section 2) of one matrix in up to two orders from the same
// reads: by_row has one scale per row, by_column one per column. Each folds factors in first, one rounding: by_row one
// factor a column, by_column one a row. Codes: those of kInverse with lo = -127, hi = 127 on the folded numbers.
struct Int8Order {
  const float* fold = nullptr;       // nullptr: 1
  float* scales = nullptr;           // out: max(largest abs of the folded numbers / 127, 2^-126)
  int8_t* codes = nullptr;           // out, [rows, cols] in both orders; nullptr: this order is not wanted
  int64_t stride = 0;                // bytes of a row of codes
  const RandomStream* sr = nullptr;  // draws: element first_element + r * cols + c; nullptr: to nearest
  int64_t first_element = 0;
  bool turned = false;  // by_column on a device: codes [cols, rows], so that its product finds the rows contiguous
};
struct Int8OrdersArgs {
  int64_t rows = 0, cols = 0;
  const void* x = nullptr;  // fp32, or bf16, dense
  bool bf16 = false;
  Int8Order by_row, by_column;
  uint32_t* flags = nullptr;  // OR of kFlagNonFinite where a folded number is not finite
};
// False when a folded number is NaN or Inf: then scales and codes are not written, or in part. A device
// returns true and sets `flags`.
bool quantize_int8_orders(const Int8OrdersArgs& args);

}  // namespace bitgrad::kernels
