// Functions of a QuantSpec alone: the codes in use and the annealed sharpness of the rule tanh.
#include "bitgrad/quant/scheme.h"

#include <algorithm>

#include "bitgrad/base/math.h"

namespace bitgrad {

CodeLimits code_limits(const QuantSpec& spec) {
  const DTypeInfo& info = spec.dtype.info();
  return spec.reduce_range ? CodeLimits{info.qmin / 2, info.qmax / 2} : CodeLimits{info.qmin, info.qmax};
}

float annealed_t(const QuantSpec& spec, double progress) {
  const double first = static_cast<double>(spec.ste_t_first), last = static_cast<double>(spec.ste_t_last);
  const double p = std::clamp(progress, 0.0, 1.0);
  if (p == 0.0) return spec.ste_t_first;
  if (p == 1.0) return spec.ste_t_last;
  const double slope = static_cast<double>(math::log(static_cast<float>(last / first)));
  return static_cast<float>(first * static_cast<double>(math::exp(static_cast<float>(p * slope))));
}

}  // namespace bitgrad
