// Family elementwise: loops over contiguous elements. The same source is compiled for scalar, AVX2 and AVX-512 without
// contraction, so all three give the same bits. Work is split every 16384 elements. Pointers are the current device's.
#pragma once

#include "bitgrad/base/rng.h"
#include "bitgrad/kernels/quantize_rules.h"
#include "bitgrad/kernels/unary_op.h"
#include "kernels/conv.h"
#include "kernels/floats.h"
#include "kernels/reduce.h"

namespace bitgrad {
struct StepScalars;  // base/step_scalars.h
}

namespace bitgrad::kernels {

// y[i] = f(x[i]), in the dtype of x: fp32, bf16 (f is computed in fp32 and rounded once to nearest even), or fp64 on
// the CPU. gx[i] = gy[i] * f'(x[i]) (one product), both fp64 if x is, otherwise fp32. y may alias x; gx may alias x or
// gy of equal dtype.
void unary_forward(UnaryOp op, int64_t n, const FloatsIn& x, const FloatsOut& y);
void unary_backward(UnaryOp op, int64_t n, const FloatsIn& x, const FloatsIn& gy, const FloatsOut& gx);

// y = a + b, y = a * b. y may alias an operand.
void add(int64_t n, const float* a, const float* b, float* y);
void mul(int64_t n, const float* a, const float* b, float* y);
// y[i] = x[i] * s
void scale(int64_t n, const float* x, float s, float* y);
// x[i] = x[i] / divisor
void divide(int64_t n, float* x, float divisor);
// x[i] is clamped to [lo, hi]
void clamp(int64_t n, float lo, float hi, float* x);

// gx[r,c] = mask bit ? (g[r,c] * s) : 0. Mask rows have (cols+63)/64 words. s = 1 skips the multiplication. g and gx
// are dense, each fp32 or bf16; gx may alias g of equal dtype.
struct MaskArgs {
  int64_t rows = 0, cols = 0;
  FloatsIn g = {};
  const uint64_t* mask = nullptr;
  float s = 1.0f;
  FloatsOut gx = {};
};
void apply_mask(const MaskArgs& args);

// Keep mask of dropout: element e = first_element + r*cols + c is kept if bits16(e) >= threshold (0 to 65536). Mask
// rows have (cols+63)/64 words; pad bits are zero.
struct KeepMaskArgs {
  int64_t rows = 0, cols = 0;
  const RandomStream* stream = nullptr;
  int64_t first_element = 0;
  uint32_t threshold = 0;
  uint64_t* mask = nullptr;
};
void keep_mask(const KeepMaskArgs& args);

// Replaces dropped elements of codes by the code of `zero`. Either from == to, or bint1 -> ternary (raw 1 -> 01, raw 0
// -> 11, dropped -> 00).
struct DropCodesArgs {
  int64_t rows = 0, cols = 0;
  DType from = dtypes::int8, to = dtypes::int8;
  const void* in = nullptr;        // canonical
  int64_t in_stride = 0;           // bytes
  const uint64_t* mask = nullptr;  // keep mask, as from keep_mask
  // Value of dropped elements, by row if zero_step is 1; nullptr: 0.
  const int32_t* zero = nullptr;
  int64_t zero_step = 0;
  void* out = nullptr;  // canonical; pad bits are zeroed
  int64_t out_stride = 0;
};
void drop_codes(const DropCodesArgs& args);

// y[r,c] = ((x[r,c] - mean[c]) * inv[c]) * gamma[c] + beta[c], each operation rounded once. With column_step 0, one
// mean, inv, gamma and beta apply to all columns. x and y are dense, fp32 or bf16, of equal dtype. y may alias x.
struct NormalizeArgs {
  int64_t rows = 0, cols = 0;
  FloatsIn x = {};
  const float *mean = nullptr, *inv = nullptr, *gamma = nullptr, *beta = nullptr;
  int64_t column_step = 1;
  FloatsOut y = {};
};
void normalize(const NormalizeArgs& args);

// gx = ((gy - mean_gy[c]) - xhat * mean_gy_xhat[c]) * (gamma * inv) with xhat = (x - mean) * inv; mean_gy and
// mean_gy_xhat are sum gy / n and sum gy * xhat / n. x, gy and gx are dense, each fp32 or bf16. gx may alias an input
// of equal dtype.
struct NormalizeBackwardArgs {
  int64_t rows = 0, cols = 0;
  FloatsIn x = {}, gy = {};
  const float *mean = nullptr, *inv = nullptr, *gamma = nullptr, *mean_gy = nullptr, *mean_gy_xhat = nullptr;
  int64_t column_step = 1;
  FloatsOut gx = {};
  // Clip rule for signs of the normalized values (column_step 1, CPU only): gy counts only where
  // |xhat * gamma + beta| <= 1, otherwise as +0. nullptr: no clipping.
  const float* clip_beta = nullptr;
};
void normalize_backward(const NormalizeBackwardArgs& args);

// Turns the sums of a window into the gradients that an update consumes, in one sweep (docs/numerics.md section 6,
// steps 1, 3 and 4). Same bits as divide, the straight-through rule and clamp in sequence:
//   g = clamp(lo <= w <= hi ? g / divisor : +0, -clip_value, clip_value)
// The clip rule sets bounds on w (binary: -1 and 1); the identity rule sets none. Returns whether all sums were finite;
// if not, g still holds the result of the formula. On a device, returns true and sets `flags`.
struct FinishGradientArgs {
  int64_t n = 0;
  float* g = nullptr;
  float divisor = 1;  // 1 to 2^28: the count of the window
  // The values that g is the gradient of; nullptr: no bounds. NaN counts as out of bounds.
  const float* w = nullptr;
  float lo = -1, hi = 1;
  float clip_value = 0;       // 0: off
  uint32_t* flags = nullptr;  // OR of kFlagNonFinite (quantize.h) if a sum is not finite
};
bool finish_gradient(const FinishGradientArgs& args);

// Optimizer updates (docs/numerics.md section 6). w, m, v and the momentum buffer are updated in place; g is the
// finished gradient (divided and clipped).
struct SgdArgs {
  int64_t n = 0;
  float* w = nullptr;
  const float* g = nullptr;
  float* momentum_buffer = nullptr;        // optional: b = mu*b + g; step = nesterov ? g + mu*b : b
  float lr = 0, mu = 0, weight_decay = 0;  // weight_decay is coupled: g += weight_decay * w
  bool nesterov = false;
  // Device only: uses live->lr * lr_factor instead of lr, base_decay * live->decay instead of weight_decay, base_mu *
  // live->momentum instead of mu.
  const StepScalars* live = nullptr;
  float lr_factor = 1, base_decay = 0, base_mu = 0;
};
void sgd_update(const SgdArgs& args);

// m = lerp(m, g, a1);  v = lerp(v, g*g, a2);  w -= lr*((m/c1)/(sqrt(v/c2)+eps)).
// decoupled: first w -= (lr*wd)*w (AdamW);  else first g += wd*w (Adam).
// lerp(old, x, a) is math::lerp with b = 1 - a. a and b are each rounded once from double: computing 1 - b in fp32 for
// b near 1 would lose most digits, and b*old + a*x would forget at the rate of the rounded b.
struct AdamArgs {
  int64_t n = 0;
  float *w = nullptr, *m = nullptr, *v = nullptr;
  const float* g = nullptr;
  float lr = 0;
  float a1 = 0.1f, a2 = 0.001f;  // 1 - beta
  float b1 = 0.9f, b2 = 0.999f;  // beta; read only where a >= 1/2
  float eps = 1e-8f, c1 = 1, c2 = 1, weight_decay = 0;
  bool decoupled = false;
  // Device only: uses live->lr * lr_factor, base_decay * live->decay, and c1 and c2 of live->age[age] instead.
  const StepScalars* live = nullptr;
  float lr_factor = 1, base_decay = 0;
  int age = 0;
};
void adam_update(const AdamArgs& args);

// Bop: m = lerp(m, g, gamma); w = -w where abs m > threshold and sign m = sign w. Every w is -1 or +1.
struct BopArgs {
  int64_t n = 0;
  float *w = nullptr, *m = nullptr;
  const float* g = nullptr;
  float gamma = 0, threshold = 0;
  // Device only; replaces gamma by min(base_gamma * (lr / base_lr), 1) in double, rounded once;
  // lr = live->lr * lr_factor.
  const StepScalars* live = nullptr;
  float lr_factor = 1, base_gamma = 0;
  double base_lr = 1;
};
void bop_update(const BopArgs& args);

// fp32 to bf16 (nearest even, or stochastic with 16-bit draws: x[i] uses the draw of element first + i), and back.
void to_bf16(int64_t n, const float* x, uint16_t* y);
void to_bf16_stochastic(int64_t n, const float* x, const RandomStream& draws, uint64_t first, uint16_t* y);
void from_bf16(int64_t n, const uint16_t* x, float* y);

// Optimizer moments in 8 and 4 bits (docs/numerics.md section 6), in blocks of kMomentBlock elements; the last may be
// shorter. `scales` has one fp32 per block. The number of code q is n(q) = (1 + f/2^b)*2^e - 1, e = q >> b, f = the low
// b bits of q.
//   means:    b = 3, s = max(a / n(127), 2^-126), a = max abs x of the block
//             q = code of abs x * (1/s) with the sign of x, in [-127, 127];  x = s*n(abs q) with the sign of q
//   squares:  b = 4, s = max(a / n(255), 2^-126), a = max sqrt x of the block, x >= 0
//             q = code of sqrt x * (1/s), in [0, 255], at least 1 where x > 0;  x = (s*n(q))*(s*n(q))
//   matrix:   as means with b = 5
//   in 4 bits: means with b = 0 and n(7), in [-7, 7], matrix with b = 1; squares with b = 1 and n(15), in [0, 15]
// Two codes of 4 bits share a byte, element 2i in the low bits; n codes take (n + 1) / 2 bytes, unused bits are 0.
// A number between two codes becomes one of them by the draw of its element, so that its mean is the number: the draw
// above for step 0, + 40503 * draws.step modulo 65536.
inline constexpr int64_t kMomentBlock = 256;
struct MomentCodes {
  int bits = 8;  // or 4
  MomentValues values = MomentValues::kMeans;
  uint8_t* codes = nullptr;
  float* scales = nullptr;

  // Those of the elements from i on, a multiple of kMomentBlock.
  MomentCodes from(int64_t i) const { return {bits, values, codes + i * bits / 8, scales + i / kMomentBlock}; }
};
void narrow_moments(int64_t n, const float* x, const RandomStream& draws, uint64_t first, const MomentCodes& q);
void widen_moments(int64_t n, const MomentCodes& q, float* x);

// Sequences fused into one pass, fp32 and CPU only. Devices run the sequence or a map (kernels/map/list.h).
namespace cpu {

// gx = g * (max(1, t) * (1 - tanh^2(t x))), plus `sum` if given (which may alias gx). Each operation is rounded once;
// same bits as map TanhGradient. gx may alias g. IR-Net: Qin et al. 2020, arXiv 1909.10788, eq. 11.
void tanh_gradient(int64_t n, float t, const float* x, const float* g, const float* sum, float* gx);

// y = hardtanh(a + b), with the bits of add followed by unary_forward; y may alias a or b. `inside` (optional) receives
// (n+63)/64 words: bit i is set if -1 <= a[i] + b[i] <= 1, where the derivative is 1. Pad bits are 0.
void add_hardtanh(int64_t n, const float* a, const float* b, float* y, uint64_t* inside);
// gx[i] = g[i] * (bit i ? 1 : 0): the backward of hardtanh. gx may alias g.
void times_bits(int64_t n, const float* g, const uint64_t* mask, float* gx);

// y = hardtanh(norm + b), where norm is what normalize(args) computes with per-column parameters; norm is not
// materialized, and y is args.y. Same bits and `inside` as add_hardtanh. Requires normalize_joins().
bool normalize_joins(int64_t rows, int64_t cols);
void normalize_add_hardtanh(const NormalizeArgs& args, const float* b, uint64_t* inside);
// masked[i] = gy[i] * (bit i ? 1 : 0) as times_bits, and norm_sums of it. masked may alias gy.
void norm_sums_of_bits(const NormSumsArgs& args, const uint64_t* bits, float* masked);

// norm_sums and normalize_backward of the gradient that max_pool_gradient(pool) computes, which is produced block by
// block and never materialized. args.gy is not read; per-column parameters only.
void norm_sums_of_pool(const NormSumsArgs& args, const MaxPoolGradientArgs& pool);
void normalize_backward_of_pool(const NormalizeBackwardArgs& args, const MaxPoolGradientArgs& pool);

}  // namespace cpu

}  // namespace bitgrad::kernels
