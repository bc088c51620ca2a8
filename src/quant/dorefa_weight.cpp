// dorefa_weight, for kind uint of b bits: s = 2 / (2^b - 1), m = -1; code = rint((2^b - 1) * (tanh x / (2M) + 1/2)),
// where M = max abs tanh x of the block, at least eps (2^-126), is the params' statistic. A block of zeros therefore
// has codes rint((2^b - 1) / 2), one of the two whose values are nearest to 0. M is computed as tanh(max abs x).
// DoReFa-Net: Zhou et al. 2016, arXiv 1606.06160, eqs. 8 and 9. The gradient passes through tanh and the division, with
// M constant: gx = g * ((1 - tanh^2 x) / M).
#include "bitgrad/quant/scheme.h"
#include "quant/blocks.h"
#include "quant/checks.h"
#include "quant/map/scales.h"
#include "quant/straight_through.h"

namespace bitgrad::detail {
namespace {

class DorefaWeight final : public BuiltinQuantizer {
 public:
  std::string_view name() const override { return "dorefa_weight"; }
  void check(const QuantSpec& spec, bool) const override {
    check_common(*this, spec, {.scale_dtype = false});
    require_uint(name(), spec.dtype);
    const SteRule rule = spec.ste.value_or(default_ste());
    require(rule == SteRule::kIdentity || rule == SteRule::kNone, name(), "straight-through rule: got ",
            enum_name(rule),
            ", expected identity or none. The scheme has its own derivative, and codes that are never clamped.");
  }
  SteRule default_ste() const override { return SteRule::kIdentity; }
  CodeRange code_range(const QuantSpec& spec) const override {
    return {CodeRule::kTanh, 0, spec.dtype.info().qmax, false, true};
  }
  QuantParams fit(const QuantSpec& spec, const Tensor& x) const override {
    const Blocks blocks(name(), spec.granularity, x);
    const float eps = spec.eps.value_or(kSmallestNormal);
    const Tensor a = blocks.statistic(kernels::ReduceRule::kAbsMax);
    const Tensor largest = Tensor::empty({blocks.count()}, dtypes::fp32, MemoryKind::kQuantState);
    run_map(maps::LargestTanh{a.as<float>(), eps, largest.as<float>()}, blocks.count());
    QuantParams params =
        params_with(name(), spec, filled(blocks.count(), 2.0f / static_cast<float>(spec.dtype.info().qmax)));
    params.offset = shared(filled(blocks.count(), -1.0f));
    params.statistic = shared(largest);
    return params;
  }
  bool own_backward(const QuantSpec&) const override { return true; }
  void leaf_backward(const QuantSpec& spec, const QuantParams& params, const Tensor& x, const Tensor& g_value,
                     const Tensor& g_x, std::span<const Tensor> g_learned) const override {
    if (spec.ste == SteRule::kNone) return Quantizer::leaf_backward(spec, params, x, g_value, g_x, g_learned);
    check_leaf(*this, spec, params, x, g_value, g_x, g_learned);
    if (x.numel() == 0) return;
    const BlockMap blocks(params, x);
    run_elements(
        maps::DorefaWeightGradient{
            {x.cols(), blocks.map()}, blocks.statistic(), x.as<float>(), g_value.as<float>(), g_x.as<float>()},
        x.rows());
  }
};

}  // namespace

std::unique_ptr<Quantizer> make_DorefaWeight() { return std::make_unique<DorefaWeight>(); }

}  // namespace bitgrad::detail
