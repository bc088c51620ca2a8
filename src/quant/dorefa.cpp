// The schemes of DoReFa-Net for weights, activations and gradients.
#include "bitgrad/quant/scheme.h"
#include "quant/blocks.h"
#include "quant/checks.h"
#include "quant/map/scales.h"
#include "quant/straight_through.h"

namespace bitgrad::detail {
namespace {

// dorefa_weight, for kind uint of b bits: s = 2 / (2^b - 1), m = -1; code = rint((2^b - 1) * (tanh x / (2M) + 1/2)),
// where M = max abs tanh x of the block, at least eps (2^-126), is the params' statistic. A block of zeros therefore
// has codes rint((2^b - 1) / 2), one of the two whose values are nearest to 0. M is computed as tanh(max abs x).
// DoReFa-Net: Zhou et al. 2016, arXiv 1606.06160, eqs. 8 and 9. The gradient passes through tanh and the division, with
// M constant: gx = g * ((1 - tanh^2 x) / M).
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

// dorefa_activation, for kind uint of b bits: s = 1 / (2^b - 1) for the whole tensor;
// code = clamp(rint((2^b - 1) * x), 0, 2^b - 1), which equals rint((2^b - 1) * clamp(x, 0, 1)). DoReFa-Net: Zhou et al.
// 2016, arXiv 1606.06160, eq. 11. Rule clip is that of docs/numerics.md section 3: it tests the code before the clamp,
// so values outside [0, 1] that round to 0 or 2^b - 1 pass too.
class DorefaActivation final : public BuiltinQuantizer {
 public:
  std::string_view name() const override { return "dorefa_activation"; }
  void check(const QuantSpec& spec, bool weight) const override {
    check_common(*this, spec, {.scale_dtype = false});
    require_uint(name(), spec.dtype);
    require(!weight, name(), "dtype of weights: got ", spec.dtype,
            ", where weights below 0 would become 0. Use scheme dorefa_weight.");
  }
  CodeRange code_range(const QuantSpec& spec) const override { return {CodeRule::kTimes, 0, spec.dtype.info().qmax}; }
  bool constant_params(const QuantSpec&) const override { return true; }
  QuantParams fit(const QuantSpec& spec, const Tensor&) const override {
    QuantParams params;
    params.scheme = name();
    params.scale = shared(filled(1, 1.0f / static_cast<float>(spec.dtype.info().qmax)));
    return params;
  }
};

// dorefa_gradient, for kind uint of b bits: s = max(2a / (2^b - 1), eps), m = -a, a = max abs x of the block (per
// token: of a row; in images a row is a pixel); code = clamp(rint((x - m) / s), 0, 2^b - 1). A block of zeros has
// s = eps, m = 0 and values 0. DoReFa-Net: Zhou et al. 2016, arXiv 1606.06160, eq. 12, whose noise is stochastic
// rounding; nearest is legal too, but then 0 becomes +-s/2, because no code has the value 0. The paper takes the
// maximum over a sample, which equals per token only if a sample is one row of features.
class DorefaGradient final : public BuiltinQuantizer {
 public:
  std::string_view name() const override { return "dorefa_gradient"; }
  void check(const QuantSpec& spec, bool) const override {
    check_common(*this, spec, {.pow2 = true, .div = true});
    require_uint(name(), spec.dtype);
  }
  CodeRange code_range(const QuantSpec& spec) const override { return {CodeRule::kOffset, 0, spec.dtype.info().qmax}; }
  QuantParams fit(const QuantSpec& spec, const Tensor& x) const override {
    const Blocks blocks(name(), spec.granularity, x);
    const float eps = spec.eps.value_or(kSmallestNormal), qmax = static_cast<float>(spec.dtype.info().qmax);
    const Tensor a = blocks.statistic(kernels::ReduceRule::kAbsMax);
    QuantParams params =
        scale_params(spec, blocks, eps, maps::BlockScales{a.as<float>(), blocks.sizes(), false, 2.0f, qmax, eps, {}});
    const Tensor m = Tensor::empty({blocks.count()}, dtypes::fp32, MemoryKind::kQuantState);
    run_map(maps::NegatedNumbers{a.as<float>(), m.as<float>(), scale_rounding(spec)}, blocks.count());
    params.offset = shared(m);
    return params;
  }
};

}  // namespace

std::unique_ptr<Quantizer> make_DorefaWeight() { return std::make_unique<DorefaWeight>(); }
std::unique_ptr<Quantizer> make_DorefaActivation() { return std::make_unique<DorefaActivation>(); }
std::unique_ptr<Quantizer> make_DorefaGradient() { return std::make_unique<DorefaGradient>(); }

}  // namespace bitgrad::detail
