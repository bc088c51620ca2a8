// standardized_binary, for bint1 weights (the balanced form of IR-Net: Qin et al. 2020, arXiv 1909.10788, eqs. 4 to 8):
// u = (x - mean) / sd per block, sd = max(sqrt(sum (x - mean)^2 / (n - 1)), eps), or 1 if n = 1; code = x >= mean,
// which equals u >= 0; s = 2^round(log2 max(mean abs u, eps)), mean abs u = (sum abs(x - mean) / n) / sd. The params'
// statistic is the mean. The rounding of log2 has no ties: they would need a significand of sqrt 2, which fp32 does not
// have.
//
// Gradient: h = g * s * slope(u) by the rule (tanh by default), then through the standardization, with s constant:
//   gx = ((h - mean h) - u * (sum h u / (n - 1))) / sd, each sum in the order of docs/numerics.md section 8.
// mean and sd are those of x. If sd is eps or 1 by definition it is a constant, and the term with u is dropped.
//
// A block must lie within one row, so that slices of rows give the same result.
#include "quant/blocks.h"
#include "quant/checks.h"
#include "quant/map/scales.h"
#include "quant/straight_through.h"

namespace bitgrad::detail {
namespace {

struct Moments {
  Tensor mean, sd;
  Tensor constant;  // int32: whether sd is eps or 1 by definition
};

Moments moments(const Blocks& blocks, float eps) {
  Moments m{blocks.means(kernels::ReduceRule::kSum, {}),
            Tensor::empty({blocks.count()}, dtypes::fp32, MemoryKind::kWorkspace),
            {}};
  if (blocks.empty()) return m;
  const Tensor squares = blocks.statistic(kernels::ReduceRule::kSumSquaredDiff, m.mean);
  m.constant = Tensor::empty({blocks.count()}, dtypes::int32, MemoryKind::kWorkspace);
  const BlockCheck check;
  run_map(
      maps::StandardDeviations{
          squares.as<float>(), blocks.sizes(), eps, {m.sd.as<float>(), check.flags()}, m.constant.as<int32_t>()},
      blocks.count());
  check.numbers(m.sd, blocks, "standard deviation");
  return m;
}

class StandardizedBinary final : public BuiltinQuantizer {
 public:
  std::string_view name() const override { return "standardized_binary"; }
  void check(const QuantSpec& spec, bool) const override {
    check_common(*this, spec, {});
    require(spec.dtype.kind() == DTypeKind::kSign, name(), "dtype ", spec.dtype, ": got kind ",
            kind_name(spec.dtype.kind()), ", expected kind sign, such as bint1.");
    const Granularity& g = spec.granularity;
    require(g.per_row() || (g.kind == Granularity::kGroup && g.axis != 0), name(), "granularity: got ", g,
            ", expected channel(0), token or groups along a row.");
  }
  SteRule default_ste() const override { return SteRule::kTanh; }
  CodeRange code_range(const QuantSpec&) const override { return {CodeRule::kAtLeast, -1, 1, false, true}; }
  QuantParams fit(const QuantSpec& spec, const Tensor& x) const override {
    const Blocks blocks(name(), spec.granularity, x);
    const float eps = spec.eps.value_or(kSmallestNormal);
    const Moments m = moments(blocks, eps);
    const Tensor sum = blocks.statistic(kernels::ReduceRule::kSumAbsDiff, m.mean);
    QuantParams params =
        scale_params(spec, blocks, maps::q::round_pow2(eps),
                     maps::StandardizedScales{sum.as<float>(), m.sd.as<float>(), blocks.sizes(), eps, {}});
    params.statistic = shared(m.mean);
    return params;
  }
  bool own_backward(const QuantSpec&) const override { return true; }
  void leaf_backward(const QuantSpec& spec, const QuantParams& params, const Tensor& x, const Tensor& g_value,
                     const Tensor& g_x, std::span<const Tensor> g_learned) const override;
};

void StandardizedBinary::leaf_backward(const QuantSpec& spec, const QuantParams& params, const Tensor& x,
                                       const Tensor& g_value, const Tensor& g_x,
                                       std::span<const Tensor> g_learned) const {
  check_leaf(*this, spec, params, x, g_value, g_x, g_learned);
  if (x.numel() == 0) return;
  const Blocks blocks(name(), params.granularity, x);
  const Moments m = moments(blocks, spec.eps.value_or(kSmallestNormal));
  const BlockMap map(params, x);
  const maps::q::Elements elements{x.cols(), map.map()};
  const float *mean = m.mean.as<float>(), *sd = m.sd.as<float>();
  float* h = g_x.as<float>();
  const Tensor hu = Tensor::empty(x.shape(), dtypes::fp32, MemoryKind::kWorkspace);
  run_elements(maps::StandardizedProducts{elements, mean, sd, spec.ste.value_or(default_ste()), spec.ste_t,
                                          x.as<float>(), g_value.as<float>(), h, hu.as<float>()},
               x.rows());
  const Tensor mean_h = Tensor::empty({blocks.count()}, dtypes::fp32, MemoryKind::kWorkspace),
               slope = Tensor::empty({blocks.count()}, dtypes::fp32, MemoryKind::kWorkspace);
  Blocks(name(), params.granularity, g_x.without_quant()).sums_to(mean_h.as<float>());
  Blocks(name(), params.granularity, hu).sums_to(slope.as<float>());
  run_map(maps::StandardizedMeans{blocks.sizes(), m.constant.as<int32_t>(), mean_h.as<float>(), slope.as<float>()},
          blocks.count());
  run_elements(maps::StandardizedGradient{elements, mean, sd, mean_h.as<float>(), slope.as<float>(), x.as<float>(), h},
               x.rows());
}

}  // namespace

std::unique_ptr<Quantizer> make_StandardizedBinary() { return std::make_unique<StandardizedBinary>(); }

}  // namespace bitgrad::detail
