// The straight-through rules: docs/numerics.md section 3.
//   identity:     gx = g
//   clip:         gx = g where the code before its clamp is in range (binary, step: abs x <= 1), else 0
//   approx_sign:  gx = g * max(0, 2 - 2 abs x)
//                 Bi-Real Net: Liu et al. 2018, arXiv 1808.00278, eq. 7
//   tanh:         gx = g * (max(1, t) * (1 - tanh^2(t x)))
//                 IR-Net: Qin et al. 2020, arXiv 1909.10788, eq. 11
//   none:         gx = 0
// For binary with alpha, value = alpha * sign(x), so g is first multiplied by alpha.
#include "quant/straight_through.h"

#include "bitgrad/dtype/codec.h"
#include "kernels/elementwise.h"
#include "quant/values.h"

namespace bitgrad {
namespace {

void require_gradient(std::string_view where, const Tensor& g, const Shape& shape, std::string_view what) {
  require(g.defined() && g.dtype() == dtypes::fp32 && g.shape() == shape && g.contiguous(), where, what, ": got ", g,
          ", expected ", shape, " fp32, dense.");
}

// gx = g * slope(x) for the rules that read x.
void times_slope(const QuantSpec& spec, SteRule rule, const float* x, const float* g, int64_t n, float* gx) {
  if (rule == SteRule::kApproxSign) return run_map(maps::ApproxSignGradient{x, g, gx}, n);
  detail::tanh_gradient(spec.ste_t, x, g, nullptr, n, gx);
}

// gx = g where the clip rule passes, else 0.
void clip(const CodeRange& range, const ScaleMap& scales, const Tensor& x, DType dtype, const float* g, float* gx) {
  kernels::QuantizeArgs args;
  args.rows = x.rows();
  args.cols = args.ldx = x.cols();
  args.x = x.as<float>();
  args.dtype = dtype;
  args.rule = range.rule;
  args.lo = range.lo;
  args.hi = range.hi;
  args.scale = scales;
  kernels::clip_gradient(args, g, gx);
}

}  // namespace

namespace detail {

void tanh_gradient(float t, const float* x, const float* g, const float* sum, int64_t n, float* gx) {
  if (current_device().is_cpu()) return kernels::cpu::tanh_gradient(n, t, x, g, sum, gx);
  run_map(maps::TanhGradient{t, x, g, sum, gx}, n);
}

void times_scale(const QuantParams& params, const Tensor& g, const Tensor& out) {
  const BlockMap blocks(params, g);
  const ScaleMap& map = blocks.map();
  if (map.scale == nullptr) {
    if (out.data() != g.data()) out.copy_from(g);
    return;
  }
  if (map.per_tensor() && current_device().is_cpu())
    return kernels::scale(g.numel(), g.as<float>(), *map.scale, out.as<float>());
  run_elements(maps::TimesScale{{g.cols(), map}, g.as<float>(), out.as<float>()}, g.rows());
}

void check_leaf(const Quantizer& quantizer, const QuantSpec& spec, const QuantParams& params, const Tensor& x,
                const Tensor& g_value, const Tensor& g_x, std::span<const Tensor> g_learned) {
  const std::string_view where = quantizer.name();
  require_gradient(where, x, x.shape(), "the master");
  require_gradient(where, g_value, x.shape(), "the gradient of the value");
  if (g_x.defined() || g_learned.empty()) require_gradient(where, g_x, x.shape(), "the gradient of the master");
  if (g_learned.empty()) return;
  const std::vector<LearnedPart> parts = quantizer.learned(spec);
  require(g_learned.size() == parts.size(), where, "gradients of learned parts: got ", g_learned.size(), ", expected ",
          parts.size(), '.');
  const int64_t blocks = scale_count(params.granularity, x.rows(), x.cols());
  for (size_t i = 0; i < parts.size(); ++i) {
    const Tensor& g = g_learned[i];  // may be a slice of a larger buffer
    require(g.defined() && g.dtype() == dtypes::fp32 && g.shape() == Shape{blocks} && g.layout() == layouts::canonical,
            where, "the gradient of the learned ", parts[i].name, ": got ", g, ", expected [", blocks, "] fp32.");
  }
}

BlockMap::BlockMap(const QuantParams& params, const Tensor& x)
    : scaled_(x.with_quant(std::make_shared<const QuantParams>(params))), map_(scaled_.scale_map()) {}

const float* BlockMap::statistic() const {
  const QuantParams& params = *scaled_.quant();
  require(params.statistic != nullptr, params.scheme, "the params of ", scaled_,
          " lack the scheme's statistic. Fit them to values.");
  return params.statistic->as<float>();
}

}  // namespace detail

void Quantizer::leaf_backward(const QuantSpec& spec, const QuantParams& params, const Tensor& x, const Tensor& g_value,
                              const Tensor& g_x, std::span<const Tensor> g_learned) const {
  detail::check_leaf(*this, spec, params, x, g_value, g_x, g_learned);
  if (x.numel() == 0 || !g_x.defined()) return;
  const SteRule rule = spec.ste.value_or(default_ste());
  float* out = g_x.as<float>();
  if (rule == SteRule::kNone) {
    return device_backend(current_device()).fill_zero(out, g_x.bytes());
  }
  const Tensor& g = spec.alpha ? g_x : g_value;
  if (spec.alpha) detail::times_scale(params, g_value, g_x);
  const CodeRange range = code_range(spec);
  if (rule == SteRule::kApproxSign || rule == SteRule::kTanh) {
    times_slope(spec, rule, x.as<float>(), g.as<float>(), x.numel(), out);
  } else if (rule == SteRule::kClip && range.rule != CodeRule::kCodebook) {
    const Tensor scaled = x.with_quant(std::make_shared<const QuantParams>(params));
    const detail::KernelScales scales(range, scaled);
    clip(range, scales.map(), x, spec.dtype, g.as<float>(), out);
  } else if (g.data() != g_x.data()) {
    g_x.copy_from(g);
  }
}

Tensor straight_through(const QuantSpec& spec, const Tensor& g, const Tensor& mask, const Tensor& x_if_needed) {
  require_gradient("straight_through", g, g.shape(), "the gradient");
  const SteRule rule = ste_rule(spec);
  if (rule == SteRule::kNone) return Tensor::zeros(g.shape(), dtypes::fp32);
  if (rule == SteRule::kIdentity || (rule == SteRule::kClip && !mask.defined())) return g;
  Tensor gx = Tensor::empty(g.shape(), dtypes::fp32);
  if (g.numel() == 0) return gx;
  if (rule == SteRule::kApproxSign || rule == SteRule::kTanh) {
    require_gradient("straight_through", x_if_needed, g.shape(), concat("x of rule ", enum_name(rule)));
    times_slope(spec, rule, x_if_needed.as<float>(), g.as<float>(), g.numel(), gx.as<float>());
    return gx;
  }
  require(mask.dtype() == dtypes::bint1 && mask.rows() == g.rows() && mask.cols() == g.cols() && mask.contiguous(),
          "straight_through", "the mask: got ", mask, ", expected bits of [", g.rows(), ',', g.cols(), "] for ", g,
          '.');
  kernels::apply_mask(
      {g.rows(), g.cols(), g.as<float>(), static_cast<const uint64_t*>(mask.data()), 1.0f, gx.as<float>()});
  return gx;
}

}  // namespace bitgrad
