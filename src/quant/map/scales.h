// Maps: scales and statistics of blocks from sums and maxima of their values, one call per block. For the formulas see
// the schemes (src/quant/<scheme>.cpp) and docs/numerics.md section 2.
#pragma once

#include "bitgrad/base/math.h"
#include "kernels/map/scales.h"
#include "quant/map/list.h"

namespace bitgrad::maps {

// dorefa_weight: out = max(tanh largest, eps).
struct LargestTanh {
  const float* largest;
  float eps;
  float* out;
  BITGRAD_HD void operator()(int64_t j) const { out[j] = q::larger(math::tanh(largest[j]), eps); }
};

// Offsets m = +0 - number.
struct NegatedNumbers {
  const float* number;
  float* out;
  ScaleRounding rounding;
  BITGRAD_HD void operator()(int64_t j) const { out[j] = q::rounded_offset(rounding, 0.0f - number[j]); }
};

// Rounds learned scales and offsets.
struct RoundedScales {
  const float* scale;
  q::BlockOut out;
  BITGRAD_HD void operator()(int64_t j) const { out.store(j, scale[j]); }
};
struct RoundedOffsets {
  const float* offset;
  ScaleRounding rounding;
  q::BlockOut out;
  BITGRAD_HD void operator()(int64_t j) const { out.store(j, q::rounded_offset(rounding, offset[j])); }
};

// lsq_plus with codes from 0 on: out = min(+0, low), and where the step is at its floor, `middle` codes less.
struct FirstOffsets {
  const float* low;
  const float* step;
  float floor, middle;
  float* out;
  BITGRAD_HD void operator()(int64_t j) const {
    out[j] = q::smaller(0.0f, low[j]) - (step[j] <= floor ? middle * floor : 0.0f);
  }
};

// out = number of elements of the block
struct SizesOfBlocks {
  q::BlockSizes size;
  float* out;
  BITGRAD_HD void operator()(int64_t j) const { out[j] = size.of(j); }
};

// standardized_binary: sd = max(sqrt(squares / (n - 1)), eps), or 1 if n = 1. constant: whether sd is eps or 1 by
// definition.
struct StandardDeviations {
  const float* squares;
  q::BlockSizes size;
  float eps;
  q::BlockOut sd;
  int32_t* constant;
  BITGRAD_HD void operator()(int64_t j) const {
    const float n = size.of(j);
    const float raw = n > 1.0f ? sqrtf(squares[j] / (n - 1.0f)) : 1.0f;
    sd.store(j, q::larger(raw, eps));
    constant[j] = n > 1.0f && raw > eps ? 0 : 1;
  }
};

// standardized_binary: s = 2^round(log2 max(sum / n / sd, eps)). Squares below 2^-126 underflow, so an sd below 2^-63
// is not that of the block: s is that of a block of zeros, and s / sd, which the gradient has, stays at most 1.
struct StandardizedScales {
  const float *sum, *sd;
  q::BlockSizes size;
  float eps;
  q::BlockOut out;
  BITGRAD_HD void operator()(int64_t j) const {
    const float mean = sd[j] < 0x1p-63f ? 0.0f : sum[j] / size.of(j) / sd[j];
    out.store(j, q::round_pow2(q::larger(mean, eps)));
  }
};

// For KernelScales of rules that count from the lowest value: l = m + s * lo.
struct LowestNumbers {
  const float *scale, *offset;
  float lo;
  float* out;
  BITGRAD_HD void operator()(int64_t j) const { out[j] = offset[j] + scale[j] * lo; }
};

// s = max(high - low, eps) / (qmax - qmin); m = low - s * qmin.
struct MinmaxOffsetScales {
  q::RangeBlocks b;
  BITGRAD_HD void operator()(int64_t j) const {
    const float s = b.store(j, q::larger(b.high[j] - b.low[j], b.eps) / (b.hi - b.lo));
    b.store_offset(j, b.low[j] - s * b.lo);
  }
};

}  // namespace bitgrad::maps
