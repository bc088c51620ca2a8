// Maps that store gradients at their destination.
#pragma once

#include "autograd/map/list.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/dtype/bf16.h"

namespace bitgrad::maps {

// out = g, or out + g if `accumulate`, in bf16; rounded to nearest even, or stochastically by `draws`.
struct DeliverBf16 {
  uint16_t* out;
  const float* g;  // either g or g_bf16 is set
  const uint16_t* g_bf16;
  bool accumulate, stochastic;
  RandomStream draws;

  BITGRAD_HD void operator()(int64_t i) const {
    const float part = g != nullptr ? g[i] : bf16_to_float(g_bf16[i]);
    const float sum = accumulate ? bf16_to_float(out[i]) + part : part;
    out[i] =
        stochastic ? bf16_from_float_stochastic(sum, draws.bits16(static_cast<uint64_t>(i))) : bf16_from_float(sum);
  }
};

}  // namespace bitgrad::maps
