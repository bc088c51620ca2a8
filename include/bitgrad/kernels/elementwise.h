// Family elementwise: loops over contiguous numbers. Each is the same source compiled for scalar, AVX2 and AVX-512,
// without contraction, so all three give the same bits. Work is cut every 16384 elements.
#pragma once

#include "bitgrad/base/rng.h"
#include "bitgrad/base/step_scalars.h"
#include "bitgrad/kernels/kernel.h"

namespace bitgrad {

enum class UnaryOp : uint8_t {
#define BITGRAD_UNARY(name, value, derivative) name,
#include "bitgrad/kernels/unary.inc"
#undef BITGRAD_UNARY
  kCount
};
std::string_view unary_name(UnaryOp op);

}  // namespace bitgrad

namespace bitgrad::kernels {

// y[i] = f(x[i]);  gx[i] = gy[i] * f'(x[i]) (one product). fp32 or fp64. y may be x, gx may be x or gy.
void unary_forward(UnaryOp op, int64_t n, const float* x, float* y);
void unary_forward(UnaryOp op, int64_t n, const double* x, double* y);
void unary_backward(UnaryOp op, int64_t n, const float* x, const float* gy, float* gx);
void unary_backward(UnaryOp op, int64_t n, const double* x, const double* gy, double* gx);
// x and y in bf16: f is computed in fp32 and rounded once, to nearest even. gx is fp32.
void unary_forward_bf16(UnaryOp op, int64_t n, const uint16_t* x, uint16_t* y);
void unary_backward_bf16(UnaryOp op, int64_t n, const uint16_t* x, const float* gy, float* gx);

// y = a + b, y = a * b; y may be an operand.
void add(int64_t n, const float* a, const float* b, float* y);
void mul(int64_t n, const float* a, const float* b, float* y);
// y[i] = x[i] * s
void scale(int64_t n, const float* x, float s, float* y);
// x[i] = x[i] / divisor
void divide(int64_t n, float* x, float divisor);
void clamp(int64_t n, float lo, float hi, float* x);

// gx[r,c] = mask bit ? (g[r,c] * s) : 0. mask rows of (cols+63)/64 words. s = 1 multiplies nothing.
struct MaskArgs {
  int64_t rows = 0, cols = 0;
  const float* g = nullptr;
  const uint64_t* mask = nullptr;
  float s = 1.0f;
  float* gx = nullptr;
};
void apply_mask(const MaskArgs& args);

// Keep bits of dropout: element e = first + r*cols + c is kept where bits16(e) >= threshold (0 .. 65536). Rows of
// (cols+63)/64 words, pad zero.
struct KeepMaskArgs {
  int64_t rows = 0, cols = 0;
  const RandomStream* stream = nullptr;
  int64_t first_element = 0;
  uint32_t threshold = 0;
  uint64_t* mask = nullptr;
};
void keep_mask(const KeepMaskArgs& args);

// Codes with dropped elements replaced by `zero_code` (a raw code of `to`): from == to, or bint1 -> ternary (raw 1 ->
// 01, raw 0 -> 11, dropped 00).
struct DropCodesArgs {
  int64_t rows = 0, cols = 0;
  DType from = dtypes::int8, to = dtypes::int8;
  const void* in = nullptr;  // canonical
  int64_t in_stride = 0;
  const uint64_t* mask = nullptr;
  const int32_t* zero = nullptr;  // number that dropped elements get, by row if zero_step is 1 (nullptr: 0)
  int64_t zero_step = 0;
  void* out = nullptr;  // canonical, pad zeroed
  int64_t out_stride = 0;
};
void drop_codes(const DropCodesArgs& args);

// y[r,c] = ((x[r,c] - mean[c]) * inv[c]) * gamma[c] + beta[c], each operation rounded once. column_step 0: one mean,
// inv, gamma, beta for all.
struct NormalizeArgs {
  int64_t rows = 0, cols = 0;
  const float* x = nullptr;
  const float *mean = nullptr, *inv = nullptr, *gamma = nullptr, *beta = nullptr;
  int64_t column_step = 1;
  float* y = nullptr;
};
void normalize(const NormalizeArgs& args);

// gx = ((gy - sum_gy/n) - xhat * (sum_gy_xhat/n)) * (gamma * inv), xhat = (x - mean) * inv; means given as mean_gy[c],
// mean_gy_xhat[c]. gx may be gy.
struct NormalizeBackwardArgs {
  int64_t rows = 0, cols = 0;
  const float *x = nullptr, *gy = nullptr;
  const float *mean = nullptr, *inv = nullptr, *gamma = nullptr, *mean_gy = nullptr, *mean_gy_xhat = nullptr;
  int64_t column_step = 1;
  float* gx = nullptr;
  // Rule clip of the signs of the normalisation (column_step 1, on the CPU): gy counts where abs(xhat * gamma + beta)
  // <= 1, else as +0. nullptr: everywhere.
  const float* clip_beta = nullptr;
};
void normalize_backward(const NormalizeBackwardArgs& args);

// From the sums of a window to the gradients that an update takes, in one sweep (docs/numerics.md section 6, steps 1, 3
// and 4), with the bits of divide, the straight-through rule and clamp one after the other:
//   g = clamp(lo <= w <= hi ? g / divisor : +0, -clip_value, clip_value)
// Rule clip is bounds of w (binary: -1 and 1); rule identity has none. Returns whether every sum was finite; if not,
// g holds the formula's result. A device returns true and sets `flags`.
struct FinishGradientArgs {
  int64_t n = 0;
  float* g = nullptr;
  float divisor = 1;         // 1 .. 2^28: the count of the window
  const float* w = nullptr;  // the numbers that the gradient is of; nullptr: no bounds. NaN lies outside
  float lo = -1, hi = 1;
  float clip_value = 0;       // 0: off
  uint32_t* flags = nullptr;  // OR of kFlagNonFinite (quantize.h) where a sum was not finite
};
bool finish_gradient(const FinishGradientArgs& args);

// Optimizer updates (docs/numerics.md section 6): w, m, v and the momentum buffer are updated in place; g is the
// finished gradient (divided, clipped).
struct SgdArgs {
  int64_t n = 0;
  float* w = nullptr;
  const float* g = nullptr;
  float* momentum_buffer = nullptr;        // optional: b = mu*b + g; step = nesterov ? g + mu*b : b
  float lr = 0, mu = 0, weight_decay = 0;  // g += weight_decay * w (coupled)
  bool nesterov = false;
  const StepScalars* live = nullptr;  // of a device: lr is live->lr * lr_factor in place of the field
  float lr_factor = 1;
};
void sgd_update(const SgdArgs& args);

// m = lerp(m, g, a1);  v = lerp(v, g*g, a2);  w -= lr*((m/c1)/(sqrt(v/c2)+eps)).
// decoupled: first w -= (lr*wd)*w (AdamW);  else first g += wd*w (Adam).
// lerp(old, x, a): math::lerp with b = 1 - a. Both are rounded once from double: 1 - b of a b near 1 in fp32 would lose
// most of its digits, and a sum b*old + a*x forgets at the rate of the rounded b.
struct AdamArgs {
  int64_t n = 0;
  float *w = nullptr, *m = nullptr, *v = nullptr;
  const float* g = nullptr;
  float lr = 0;
  float a1 = 0.1f, a2 = 0.001f;  // 1 - beta
  float b1 = 0.9f, b2 = 0.999f;  // beta, read where a >= 1/2
  float eps = 1e-8f, c1 = 1, c2 = 1, weight_decay = 0;
  bool decoupled = false;
  const StepScalars* live = nullptr;  // of a device: lr is live->lr * lr_factor, c1 and c2 are its
  float lr_factor = 1;
};
void adam_update(const AdamArgs& args);

// Bop: m = lerp(m, g, gamma); w = -w where abs m > threshold and sign m = sign w. Every w is -1 or +1.
struct BopArgs {
  int64_t n = 0;
  float *w = nullptr, *m = nullptr;
  const float* g = nullptr;
  float gamma = 0, threshold = 0;
  // Of a device, in place of gamma: min(base_gamma * (lr / base_lr), 1) in double, rounded once, lr = live->lr *
  // lr_factor.
  const StepScalars* live = nullptr;
  float lr_factor = 1, base_gamma = 0;
  double base_lr = 1;
};
void bop_update(const BopArgs& args);

// Rounding of fp32 to bf16 (nearest even, or by 16-bit draws: x[i] is element first + i) and back.
void to_bf16(int64_t n, const float* x, uint16_t* y);
void to_bf16_stochastic(int64_t n, const float* x, const RandomStream& draws, uint64_t first, uint16_t* y);
void from_bf16(int64_t n, const uint16_t* x, float* y);

// Moments of optimizers in 8 bits (docs/numerics.md section 6), in blocks of kMomentBlock elements, the last ragged:
//   int8:   s = max(a / 127, 2^-126), a = max abs x of the block
//           q = x * (1/s) stochastically, in [-127, 127];  x = s*q
//   uint8:  s = max(a / 255, 2^-126), a = max sqrt x of the block, x >= 0
//           q = sqrt x * (1/s) stochastically, in [0, 255], at least 1 where x > 0;  x = (s*q)*(s*q)
// Draws as above.
inline constexpr int64_t kMomentBlock = 256;
void moments_to_int8(int64_t n, const float* x, const RandomStream& draws, uint64_t first, int8_t* q, float* scales);
void moments_from_int8(int64_t n, const int8_t* q, const float* scales, float* x);
void squares_to_uint8(int64_t n, const float* x, const RandomStream& draws, uint64_t first, uint8_t* q, float* scales);
void squares_from_uint8(int64_t n, const uint8_t* q, const float* scales, float* x);

}  // namespace bitgrad::kernels
