// dorefa_gradient, for kind uint of b bits: s = max(2a / (2^b - 1), eps), m = -a, a = max abs x of the block (per
// token: of a row; in images a row is a pixel); code = clamp(rint((x - m) / s), 0, 2^b - 1). A block of zeros has
// s = eps, m = 0 and values 0. DoReFa-Net: Zhou et al. 2016, arXiv 1606.06160, eq. 12, whose noise is stochastic
// rounding; nearest is legal too, but then 0 becomes +-s/2, because no code has the value 0. The paper takes the
// maximum over a sample, which equals per token only if a sample is one row of features.
#include "quant/blocks.h"
#include "quant/checks.h"
#include "quant/map/scales.h"

namespace bitgrad::detail {
namespace {

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

std::unique_ptr<Quantizer> make_DorefaGradient() { return std::make_unique<DorefaGradient>(); }

}  // namespace bitgrad::detail
