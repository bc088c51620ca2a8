// Moving averages of what trains.
#pragma once

#include "bitgrad/base/math.h"
#include "bitgrad/dtype/bf16.h"
#include "train/map/list.h"

namespace bitgrad::maps {

// average = lerp(average, x, part, rest), x being fp32 or bf16. `begins`: an average that is 0 becomes x.
struct MoveAverage {
  const float* x;          // or
  const uint16_t* x_bf16;  // if x is nullptr
  float part, rest;        // 1 - decay, decay
  bool begins;
  float* average;

  BITGRAD_HD void operator()(int64_t i) const {
    const float now = x != nullptr ? x[i] : bf16_to_float(x_bf16[i]);
    average[i] = begins && average[i] == 0.0f ? now : math::lerp(average[i], now, part, rest);
  }
};

// Writes averages back as fp32 or bf16.
struct TakeAverage {
  const float* average;
  float* x;          // or
  uint16_t* x_bf16;  // if x is nullptr

  BITGRAD_HD void operator()(int64_t i) const {
    if (x != nullptr)
      x[i] = average[i];
    else
      x_bf16[i] = bf16_from_float(average[i]);
  }
};

}  // namespace bitgrad::maps
