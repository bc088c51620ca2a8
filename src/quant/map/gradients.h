// Maps: gradients through quantizers, one call per element (maps with `at(e, j)`: element e, whose scales are those of
// block j). The rules are those of docs/numerics.md section 3.
#pragma once

#include "bitgrad/base/math.h"
#include "kernels/map/straight_through.h"
#include "quant/map/list.h"

namespace bitgrad::maps {
namespace q {

// max(1, t) * (1 - tanh^2(t x)): k t of IR-Net with k = max(1/t, 1).
BITGRAD_HD inline float tanh_slope(float t, float x) {
  const float y = math::tanh(t * x);
  return larger(1.0f, t) * (1.0f - y * y);
}
// Slope of a rule for codes of kind sign.
BITGRAD_HD inline float sign_slope(SteRule rule, float t, float x) {
  if (rule == SteRule::kNone) return 0.0f;
  if (rule == SteRule::kClip) return magnitude(x) <= 1.0f ? 1.0f : 0.0f;
  if (rule == SteRule::kApproxSign) return approx_sign_slope(x);
  return rule == SteRule::kTanh ? tanh_slope(t, x) : 1.0f;
}

}  // namespace q

// gx = g * slope(x), or sum + g * slope(x). The CPU runs kernels/elementwise.h instead.
struct TanhGradient {
  float t;
  const float *x, *g, *sum;  // sum: may be nullptr, or alias gx
  float* gx;
  BITGRAD_HD void operator()(int64_t e) const {
    const float product = g[e] * q::tanh_slope(t, x[e]);
    gx[e] = sum != nullptr ? sum[e] + product : product;
  }
};

// binary with alpha_grad: gx = g * (1/n + alpha * slope(x)).
struct AlphaGradient {
  q::Elements elements;
  const float* n;
  SteRule rule;
  float t;
  const float *x, *g;
  float* gx;
  BITGRAD_HD void at(int64_t e, int64_t j) const {
    gx[e] = g[e] * (1.0f / n[j] + elements.map.scale[j] * q::sign_slope(rule, t, x[e]));
  }
  BITGRAD_HD void operator()(int64_t e) const { at(e, elements.block(e)); }
};

// dorefa_weight: gx = g * ((1 - tanh^2 x) / M).
// A block whose largest tanh is below 2^-20, such as one of zeros, counts as one of largest tanh 1: the division would
// make gradients of 2^20 and more, up to Inf.
struct DorefaWeightGradient {
  q::Elements elements;
  const float* largest;
  const float *x, *g;
  float* gx;
  BITGRAD_HD void at(int64_t e, int64_t j) const {
    const float y = math::tanh(x[e]);
    gx[e] = g[e] * ((1.0f - y * y) / (largest[j] < 0x1p-20f ? 1.0f : largest[j]));
  }
  BITGRAD_HD void operator()(int64_t e) const { at(e, elements.block(e)); }
};

// standardized_binary, in three steps. Step 1: h = g * s * slope(u), hu = h * u, u = (x - mean) / sd; h may alias g.
struct StandardizedProducts {
  q::Elements elements;
  const float *mean, *sd;
  SteRule rule;
  float t;
  const float *x, *g;
  float *h, *hu;
  BITGRAD_HD void at(int64_t e, int64_t j) const {
    const float u = (x[e] - mean[j]) / sd[j];
    const float product = g[e] * elements.map.scale[j] * q::sign_slope(rule, t, u);
    h[e] = product;
    hu[e] = product * u;
  }
  BITGRAD_HD void operator()(int64_t e) const { at(e, elements.block(e)); }
};
// Step 2: the sums of a block become mean h and sum h u / (n - 1), the latter 0 where sd is constant. In place.
struct StandardizedMeans {
  q::BlockSizes size;
  const int32_t* constant;
  float *h, *hu;
  BITGRAD_HD void operator()(int64_t j) const {
    const float n = size.of(j);
    h[j] = h[j] / n;
    hu[j] = constant[j] != 0 ? 0.0f : hu[j] / (n - 1.0f);
  }
};
// Step 3: gx = ((h - mean h) - u * slope) / sd; overwrites h.
struct StandardizedGradient {
  q::Elements elements;
  const float *mean, *sd, *mean_h, *slope;
  const float* x;
  float* h;
  BITGRAD_HD void at(int64_t e, int64_t j) const {
    const float u = (x[e] - mean[j]) / sd[j];
    h[e] = ((h[e] - mean_h[j]) - u * slope[j]) / sd[j];
  }
  BITGRAD_HD void operator()(int64_t e) const { at(e, elements.block(e)); }
};

}  // namespace bitgrad::maps
