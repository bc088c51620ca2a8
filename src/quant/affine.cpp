// affine: s = max((hi - lo) / (qmax - qmin), eps), lo = min(0, min x), hi = max(0, max x); z = clamp(qmin - rint(lo /
// s), qmin, qmax); code = clamp(rint(x * (1/s)) + z). Equals torchao 0.18, choose_qparams_affine with MappingType
// ASYMMETRIC, in fp32. A tensor without elements has s = eps, z = 0.
#include <algorithm>
#include <cmath>

#include "quant/range.h"

namespace bitgrad::detail {
namespace {

class Affine final : public RangeQuantizer {
 public:
  std::string_view name() const override { return "affine"; }

 private:
  float scale(const CodeLimits& limits, float low, float high, float eps) const override {
    return std::max((std::max(0.0f, high) - std::min(0.0f, low)) / static_cast<float>(limits.hi - limits.lo), eps);
  }
  Shift shift() const override { return Shift::kZero; }
  float shift_of(const CodeLimits& limits, float low, float scale) const override {
    const float qmin = static_cast<float>(limits.lo), qmax = static_cast<float>(limits.hi);
    return std::clamp(qmin - std::rint(std::min(0.0f, low) / scale), qmin, qmax);
  }
};

}  // namespace

std::unique_ptr<Quantizer> make_Affine() { return std::make_unique<Affine>(); }

}  // namespace bitgrad::detail
