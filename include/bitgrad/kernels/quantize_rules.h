// The rules of quantization as plain data: how values become codes, how gradients pass, how scales are rounded and
// computed. docs/numerics.md sections 2 and 3. A header of its own, so that what names a rule does not depend on the
// contracts of kernels.
#pragma once

#include <cstdint>

namespace bitgrad {

// How a value x becomes a code, before clamping to [lo, hi]. rint rounds to nearest even, in fp32. s and m are
// scale.scale and scale.offset of QuantizeArgs.
enum class CodeRule : uint8_t {
  kInverse,    // rint(x * (1/s)) + z             affine, symmetric, absmax
  kDivide,     // rint(x / s) + z; no scale: rint(x)   ternary absmean
  kOffset,     // rint((x - m) / s)               fixed, minmax_offset, LSQ+, DoReFa gradients
  kTimes,      // rint(x * s)                     DoReFa activations: s = number of steps, 2^b - 1
  kTanh,       // rint(s * (tanh x / (2m) + 1/2)) DoReFa weights: s = number of steps, m = max abs tanh x
  kSign,       // x >= 0 -> +1, else -1           binary (kind sign)
  kAtLeast,    // x >= m -> +1, else -1           standardized_binary (kind sign): m = mean
  kPositive,   // x > 0 -> 1, else 0              step (int1)
  kThreshold,  // sign of x where abs x > m, else 0          TWN: m = threshold
  kCodebook,   // nearest level of x * (1/s), ties to the lower
};

// Whether a rule rounds to integers, and thus supports stochastic rounding.
constexpr bool rounds(CodeRule rule) {
  return rule == CodeRule::kInverse || rule == CodeRule::kDivide || rule == CodeRule::kOffset ||
         rule == CodeRule::kTimes || rule == CodeRule::kTanh;
}

// Straight-through rules (section 3). The mask has one bit per element; 1 means the gradient passes.
enum class SteRule : uint8_t { kIdentity, kClip, kApproxSign, kTanh, kNone };

// What a moment of an optimizer is, by which its 8- and 4-bit codes are spaced (section 6).
enum class MomentValues : uint8_t {
  kMeans,    // signed, each read by itself: codes span decades
  kMatrix,   // signed, read as one matrix, in which rounding errors of all elements add up: codes are closer together
  kSquares,  // non-negative: codes of their roots, which span decades
};

// How scales and offsets are rounded once computed, before zero points and codes. Section 2, "Modifiers".
struct ScaleRounding {
  bool pow2 = false;  // s -> 2^ceil(log2 s)
  bool fp16 = false;  // s -> nearest fp16, at least 2^-24; m -> nearest fp16; Inf beyond 65504
  friend bool operator==(const ScaleRounding&, const ScaleRounding&) = default;
};

}  // namespace bitgrad

namespace bitgrad::kernels {

// How the scale (and zero point) of a row is computed from its values: the formulas of the schemes, docs/numerics.md
// section 2. A row without columns gets s = eps, z = 0.
struct RowFit {
  enum Rule : uint8_t {
    kAbsmax,           // max(a / hi, eps), a = max abs x
    kSymmetric,        // max(max(-l, h) / ((hi - lo) / 2), eps), l = min(0, min x), h = max(0, max x)
    kSymmetricNoClip,  // max(max(l / lo, h / hi), eps)
    kAffine,           // max((h - l) / (hi - lo), eps); z = clamp(lo - rint(l / s), lo, hi)
    kMeanAbs,          // max(mean abs x, eps); sum in the order of section 8
    kMeanPositive,     // max(mean of x over x > 0, eps); eps if there is none
  };
  Rule rule = kAbsmax;
  float lo = 0, hi = 0;  // code range in use
  float eps = 0x1p-126f;
  ScaleRounding rounding = {};
};

}  // namespace bitgrad::kernels
