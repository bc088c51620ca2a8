// Additions to family conv for depthwise convolutions: weights ordered by tap, and epilogues for sums that need more
// than one scale and a bias. Float sums are exact integers where stated. docs/numerics.md section 4, "Depthwise
// convolutions".
#pragma once

#include "bitgrad/dtype/bf16.h"
#include "bitgrad/dtype/dtype.h"
#include "kernels/gemm/common/formulas.h"
#include "ops/map/list.h"

namespace bitgrad::maps {

// Reorders weights [outputs, taps] to [taps, outputs]; with multiples > 1 to [taps, multiples, outputs / multiples],
// where row o goes to (o % multiples, o / multiples). Words of 32 or 64 bits.
struct DepthwiseTaps {
  const void* in;
  int64_t outputs, taps, multiples;
  bool wide;
  void* out;

  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t o = i / taps, t = i - o * taps, channel = o / multiples;
    const int64_t at = t * outputs + (o - channel * multiples) * (outputs / multiples) + channel;
    if (wide)
      static_cast<uint64_t*>(out)[at] = static_cast<const uint64_t*>(in)[i];
    else
      static_cast<uint32_t*>(out)[at] = static_cast<const uint32_t*>(in)[i];
  }
};

// Sums of weights [taps, outputs] over the taps.
struct DepthwiseTapSums {
  const float* w;
  int64_t outputs, taps;
  float* out;

  BITGRAD_HD void operator()(int64_t o) const {
    float sum = 0;
    for (int64_t t = 0; t < taps; ++t) sum = sum + w[t * outputs + o];
    out[o] = sum;
  }
};

// out[i] = a * b[i / group * step]; a missing factor is 1.
struct DepthwiseScales {
  const float *a, *b;
  int64_t group, step;
  float* out;

  BITGRAD_HD void operator()(int64_t i) const {
    out[i] = (a == nullptr ? 1.0f : *a) * (b == nullptr ? 1.0f : b[i / group * step]);
  }
};

// Value of a padding pixel with code `value`: (value - zero[i * step]) * scale[i * step].
struct DepthwisePad {
  float value;
  const float* scale;
  const int32_t* zero;
  int64_t step;
  float* out;

  BITGRAD_HD void operator()(int64_t i) const {
    const float number = zero == nullptr ? value : value - static_cast<float>(zero[i * step]);
    out[i] = scale == nullptr ? number : scale[i * step] * number;
  }
};

// Output of an epilogue: rows of `outputs`.
struct DepthwiseOut {
  int64_t outputs;
  const float* bias;
  bool bf16;
  void* y;

  BITGRAD_HD void store(int64_t i, float v) const {
    if (bias != nullptr) v = v + bias[i % outputs];
    if (bf16)
      static_cast<uint16_t*>(y)[i] = bf16_from_float(v);
    else
      static_cast<float*>(y)[i] = v;
  }
};

// Real offsets on either side: a single one for a, one per channel or a single one for b. sum_a: nullptr if b has no
// offset.
struct DepthwiseOffsets {
  const float *sum, *sum_a, *sum_b;
  float taps;
  const float *a_scale, *a_offset, *b_scale, *b_offset;
  int64_t b_group, b_step;
  DepthwiseOut out;

  BITGRAD_HD void operator()(int64_t i) const {
    using Side = kernels::gemm_detail::SideParams<float>;
    const int64_t o = i % out.outputs, at = o / b_group * b_step;
    const Side a{a_scale == nullptr ? 1.0f : *a_scale, a_offset == nullptr ? 0.0f : *a_offset, a_offset != nullptr};
    const Side b{b_scale == nullptr ? 1.0f : b_scale[at], b_offset == nullptr ? 0.0f : b_offset[at],
                 b_offset != nullptr};
    out.store(i, kernels::gemm_detail::offsets_value(sum[i], sum_a == nullptr ? 0.0f : sum_a[i],
                                                     sum_b == nullptr ? 0.0f : sum_b[o], taps, a, b));
  }
};

// Adds the term of a group of taps to total, which starts at +0. Parameters of output o are at o / group * step.
struct DepthwiseGroup {
  const float *sum, *sum_a;
  const float *scale, *offset;
  int64_t outputs, group, step;
  bool first;
  float* total;

  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t at = i % outputs / group * step;
    const float s = scale == nullptr ? 1.0f : scale[at];
    const float term = offset == nullptr ? kernels::gemm_detail::group_term(sum[i], s)
                                         : kernels::gemm_detail::group_term(sum[i], s, sum_a[i], offset[at]);
    total[i] = (first ? 0.0f : total[i]) + term;
  }
};

// y = total * scale (+ bias).
struct DepthwiseTotals {
  const float *total, *scale;
  DepthwiseOut out;

  BITGRAD_HD void operator()(int64_t i) const { out.store(i, scale == nullptr ? total[i] : total[i] * *scale); }
};

// gw [outputs, taps] from panels [count, taps, outputs]: their sum, in ascending order starting with the first. fp32 or
// fp64. Index: position in a panel.
struct DepthwisePanels {
  const void* panels;
  int64_t count, taps, outputs;
  bool wide;
  void* out;

  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t t = i / outputs, o = i - t * outputs;
    if (wide)
      add<double>(i, o * taps + t);
    else
      add<float>(i, o * taps + t);
  }
  template <typename T>
  BITGRAD_HD void add(int64_t i, int64_t to) const {
    const T* const from = static_cast<const T*>(panels);
    T sum = from[i];
    for (int64_t p = 1; p < count; ++p) sum = sum + from[p * taps * outputs + i];
    static_cast<T*>(out)[to] = sum;
  }
};

// The same for exact sums: gw = float(sum) * (scale[o] * x_scale[o / multiplier * x_step]).
struct DepthwiseExactPanels {
  const float* panels;
  int64_t count, taps, outputs;
  const float *scale, *x_scale;
  int64_t multiplier, x_step;
  float* out;

  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t t = i / outputs, o = i - t * outputs;
    int64_t sum = 0;
    for (int64_t p = 0; p < count; ++p) sum += static_cast<int64_t>(panels[p * taps * outputs + i]);
    const float s = x_scale == nullptr ? scale[o] : scale[o] * x_scale[o / multiplier * x_step];
    out[o * taps + t] = static_cast<float>(sum) * s;
  }
};

}  // namespace bitgrad::maps
