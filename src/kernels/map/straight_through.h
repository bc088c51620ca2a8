// Maps: gradients through quantizers that the sweep of an optimizer step (update_rows.h) also runs. One call per
// element (functors with `at(e, j)` take element e and block j of its scales). docs/numerics.md section 3.
#pragma once

#include "kernels/map/numbers.h"

namespace bitgrad::maps {
namespace q {

// max(0, 2 - 2 abs x)
BITGRAD_HD inline float approx_sign_slope(float x) { return larger(0.0f, 2.0f - 2.0f * magnitude(x)); }

}  // namespace q

// gx = g * slope(x)
struct ApproxSignGradient {
  const float *x, *g;
  float* gx;
  BITGRAD_HD void operator()(int64_t e) const { gx[e] = g[e] * q::approx_sign_slope(x[e]); }
};

// out = g * s
struct TimesScale {
  q::Elements elements;
  const float* g;
  float* out;
  BITGRAD_HD void at(int64_t e, int64_t j) const { out[e] = g[e] * elements.map.scale[j]; }
  BITGRAD_HD void operator()(int64_t e) const { at(e, elements.block(e)); }
};

}  // namespace bitgrad::maps
