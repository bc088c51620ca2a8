// binary, for bint1 = {-1, +1}: code = x >= 0 (so -0.0 is +1). Without alpha, s = 1 and is not stored (BinaryNet:
// Courbariaux et al. 2016, arXiv 1602.02830). With alpha, s = mean abs x per block (XNOR-Net: Rastegari et al. 2016,
// arXiv 1603.05279, eq. 6). With alpha_grad, the gradient also flows through alpha (section 3.1 of XNOR-Net):
// gx = g * (1/n + alpha * d), where n is the number of elements of the block (stored as the params' statistic, so that
// a slice of rows still has it) and d is the slope of the straight-through rule.
#include "kernels/quantize.h"
#include "quant/blocks.h"
#include "quant/checks.h"
#include "quant/map/scales.h"
#include "quant/straight_through.h"

namespace bitgrad::detail {
namespace {

// Stores n of each block, for alpha_grad.
void add_statistic(const QuantSpec& spec, const Blocks& blocks, QuantParams& params) {
  if (!spec.alpha_grad) return;
  const Tensor n = Tensor::empty({blocks.count()}, dtypes::fp32, MemoryKind::kQuantState);
  run_map(maps::SizesOfBlocks{blocks.sizes(), n.as<float>()}, blocks.count());
  params.statistic = shared(n);
}

// Computes alpha of each row, and the signs in both orders.
QuantParams binarize_rows(const QuantSpec& spec, const Tensor& x, const Tensor& codes, const Tensor& transposed) {
  const Blocks blocks("binary", spec.granularity, x);
  const Tensor alpha = Tensor::empty({blocks.count()}, dtypes::fp32, MemoryKind::kQuantState);
  const DataFlag flag;
  const BlockCheck check;
  kernels::BinarizeArgs args;
  args.rows = x.rows();
  args.cols = x.cols();
  args.x = {x.data(), x.dtype()};
  args.ldx = x.stride() * 8 / x.dtype().bits();
  args.codes = codes.data();
  args.stride = codes.stride();
  args.transposed = transposed.defined() ? transposed.data() : nullptr;
  args.alpha = alpha.as<float>();
  args.eps = spec.eps.value_or(kSmallestNormal);
  if (const Tensor sums = codes.row_sums(); sums.defined()) args.row_ones = sums.as<int32_t>();
  args.flags = flag.word();
  args.alpha_flags = check.flags();
  kernels::binarize(args);
  flag.check(blocks.not_finite());
  check.numbers(alpha, blocks);
  QuantParams params = params_with(blocks.scheme(), spec, alpha);
  add_statistic(spec, blocks, params);
  return params;
}

class Binary final : public BuiltinQuantizer {
 public:
  std::string_view name() const override { return "binary"; }
  void check(const QuantSpec& spec, bool) const override {
    check_common(*this, spec, {.pow2 = spec.alpha, .scale_dtype = spec.alpha});
    require(spec.dtype.kind() == DTypeKind::kSign, name(), "dtype ", spec.dtype, ": got kind ",
            kind_name(spec.dtype.kind()), ", expected kind sign, such as bint1.");
  }
  CodeRange code_range(const QuantSpec&) const override { return {CodeRule::kSign, -1, 1}; }
  bool constant_params(const QuantSpec& spec) const override { return !spec.alpha; }
  QuantParams fit(const QuantSpec& spec, const Tensor& x) const override {
    QuantParams params;
    params.scheme = name();
    if (!spec.alpha) return params;
    const Blocks blocks(name(), spec.granularity, x);
    const float eps = spec.eps.value_or(kSmallestNormal);
    const Tensor sum = blocks.statistic(kernels::ReduceRule::kSumAbs);
    params =
        scale_params(spec, blocks, eps, maps::BlockScales{sum.as<float>(), blocks.sizes(), true, 1.0f, 1.0f, eps, {}});
    add_statistic(spec, blocks, params);
    return params;
  }
  FitAndCode fit_and_code(const QuantSpec& spec) const override {
    const bool fits = spec.alpha && scale_rounding(spec) == ScaleRounding() && spec.granularity.per_row();
    return fits && spec.dtype == dtypes::bint1 ? binarize_rows : nullptr;
  }
  std::optional<kernels::RowFit> row_fit(const QuantSpec& spec) const override {
    if (!spec.alpha || spec.alpha_grad) return std::nullopt;
    return kernels::RowFit{kernels::RowFit::kMeanAbs, -1, 1, spec.eps.value_or(kSmallestNormal), scale_rounding(spec)};
  }
  bool own_backward(const QuantSpec& spec) const override { return spec.alpha_grad; }
  void leaf_backward(const QuantSpec& spec, const QuantParams& params, const Tensor& x, const Tensor& g_value,
                     const Tensor& g_x, std::span<const Tensor> g_learned) const override {
    if (!spec.alpha_grad) return Quantizer::leaf_backward(spec, params, x, g_value, g_x, g_learned);
    check_leaf(*this, spec, params, x, g_value, g_x, g_learned);
    if (x.numel() == 0) return;
    const SteRule rule = spec.ste.value_or(default_ste());
    const BlockMap blocks(params, x);
    run_elements(maps::AlphaGradient{{x.cols(), blocks.map()},
                                     blocks.statistic(),
                                     rule,
                                     spec.ste_t,
                                     x.as<float>(),
                                     g_value.as<float>(),
                                     g_x.as<float>()},
                 x.rows());
  }
};

}  // namespace

std::unique_ptr<Quantizer> make_Binary() { return std::make_unique<Binary>(); }

}  // namespace bitgrad::detail
