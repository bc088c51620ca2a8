// Statistics of a normalization from its sums. docs/numerics.md section 6.
#pragma once

#include <cmath>

#include "bitgrad/base/math.h"
#include "ops/map/list.h"

namespace bitgrad::maps {

// inv = 1 / sqrt(squares / count + eps); running = lerp(running, new, momentum), if given. Index: statistic.
struct NormStatistics {
  const float* mean;
  const float* squares;  // sums of (x - mean)^2
  float count, eps;
  float* inv;
  float *running_mean, *running_var;  // nullptr if not tracked
  float momentum, unbias;             // running_var uses the variance squares / unbias

  BITGRAD_HD void operator()(int64_t j) const {
    if (running_mean != nullptr) {
      running_mean[j] = math::lerp(running_mean[j], mean[j], momentum, 1.0f - momentum);
      running_var[j] = math::lerp(running_var[j], squares[j] / unbias, momentum, 1.0f - momentum);
    }
    inv[j] = 1.0f / std::sqrt(squares[j] / count + eps);
  }
};

}  // namespace bitgrad::maps
