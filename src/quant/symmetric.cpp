// symmetric: s = max(max(-lo, hi) / ((qmax - qmin) / 2), eps), lo = min(0, min x), hi = max(0, max x); code =
// clamp(rint(x * (1/s))). symmetric_no_clip: s = max(max(lo / qmin, hi / qmax), eps), so that no number is clipped.
// Both equal torchao 0.18, choose_qparams_affine with MappingType SYMMETRIC and SYMMETRIC_NO_CLIPPING_ERR, in fp32.
#include <algorithm>

#include "quant/blocks.h"
#include "quant/checks.h"

namespace bitgrad::detail {
namespace {

class Symmetric : public Quantizer {
 public:
  std::string_view name() const override { return "symmetric"; }
  void check(const QuantSpec& spec, bool weight) const override {
    check_common(*this, spec);
    require_integer(name(), spec.dtype);
    refuse_int1_weight(name(), spec.dtype, weight);
  }
  CodeRange code_range(const QuantSpec& spec) const override {
    return {quotient_rule(spec), spec.dtype.info().qmin, spec.dtype.info().qmax};
  }
  QuantParams fit(const QuantSpec& spec, const Tensor& x) const override {
    const Blocks blocks(name(), spec.granularity, x);
    const float eps = spec.eps.value_or(kSmallestNormal);
    const std::vector<float> low = blocks.statistic(ReduceRule::kMin), high = blocks.statistic(ReduceRule::kMax);
    const auto scale_of = [&](size_t j) {
      return std::max(scale(spec.dtype.info(), std::min(0.0f, low[j]), std::max(0.0f, high[j])), eps);
    };
    return {std::string(name()), spec.granularity, make_scales(spec, blocks, eps, scale_of), nullptr, nullptr};
  }

 private:
  virtual float scale(const DTypeInfo& info, float lo, float hi) const {
    return std::max(-lo, hi) / (static_cast<float>(info.qmax - info.qmin) / 2.0f);
  }
};

class SymmetricNoClip final : public Symmetric {
 public:
  std::string_view name() const override { return "symmetric_no_clip"; }
  void check(const QuantSpec& spec, bool weight) const override {
    Symmetric::check(spec, weight);
    const DTypeInfo& info = spec.dtype.info();
    require(info.qmin < 0 && info.qmax > 0, name(), "dtype ", spec.dtype, ": got codes ", info.qmin, " to ", info.qmax,
            ", expected codes of both signs. Use scheme symmetric or affine.");
  }

 private:
  float scale(const DTypeInfo& info, float lo, float hi) const override {
    return std::max(lo / static_cast<float>(info.qmin), hi / static_cast<float>(info.qmax));
  }
};

}  // namespace

std::unique_ptr<Quantizer> make_Symmetric() { return std::make_unique<Symmetric>(); }
std::unique_ptr<Quantizer> make_SymmetricNoClip() { return std::make_unique<SymmetricNoClip>(); }

}  // namespace bitgrad::detail
