// The straight-through rules: docs/numerics.md section 3.
//   identity: gx = g.  clip: gx = g where the code before its clamp lies in the range (binary, step: abs x <= 1), else
//   0. approx_sign: gx = g * max(0, 2 - 2 abs x) (Bi-Real Net: Liu et al. 2018, arXiv 1808.00278, eq. 7).  none: gx =
//   0.
// binary with alpha: value = alpha * sign(x), so g is multiplied by alpha first.
#include "quant/straight_through.h"

#include <algorithm>
#include <cmath>

#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/kernels/elementwise.h"
#include "bitgrad/quant/quantizer.h"
#include "quant/kernel_scales.h"

namespace bitgrad {
namespace {

constexpr int64_t kGrain = 16384;           // elements of one piece of work
constexpr int64_t kScratchBytes = 1 << 20;  // codes and masks of leaf_backward at a time

void require_gradient(std::string_view where, const Tensor& g, const Shape& shape, std::string_view what) {
  require(g.defined() && g.dtype() == dtypes::fp32 && g.shape() == shape && g.contiguous(), where, what, ": got ", g,
          ", expected ", shape, " fp32, dense.");
}

void approx_sign(const float* x, const float* g, int64_t n, float* gx) {
  parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) gx[i] = g[i] * std::max(0.0f, 2.0f - 2.0f * std::fabs(x[i]));
  });
}

ScaleMap from_row(ScaleMap map, int64_t row) {
  const int64_t at = row / map.row_group * map.row_step;
  if (map.scale) map.scale += at;
  if (map.zero) map.zero += at;
  if (map.offset) map.offset += at;
  return map;
}

// gx = g where the clip rule passes. The quantize kernel makes the mask, a few rows at a time; its codes are dropped.
void clip(const QuantSpec& spec, const CodeRange& range, const ScaleMap& scales, const Tensor& x, const float* g,
          float* gx) {
  const int64_t cols = x.cols(), mask_words = (cols + 63) / 64, code_bytes = row_bytes_memory(spec.dtype, cols);
  const int64_t row_bytes = code_bytes + mask_words * 8, unit = scales.row_group;
  const int64_t step = std::min(x.rows(), std::max(int64_t{1}, kScratchBytes / (row_bytes * unit)) * unit);
  const Workspace scratch(step * row_bytes);
  QuantizeArgs args;
  args.cols = cols;
  args.ldx = cols;
  args.dtype = spec.dtype;
  args.mask = scratch.as<uint64_t>();
  args.codes = scratch.as<char>() + step * mask_words * 8;
  args.stride = code_bytes;
  args.rule = range.rule;
  args.lo = range.lo;
  args.hi = range.hi;
  args.ste = SteRule::kClip;
  for (int64_t r = 0; r < x.rows(); r += step) {
    args.rows = std::min(step, x.rows() - r);
    args.x = x.as<float>() + r * cols;
    args.scale = from_row(scales, r);
    quantize(args);
    apply_mask({args.rows, cols, g + r * cols, args.mask, 1.0f, gx + r * cols});
  }
}

}  // namespace

namespace detail {

void times_scale(const QuantParams& params, const Tensor& g, const Tensor& out) {
  const ScaleMap map = g.with_quant(std::make_shared<const QuantParams>(params)).scale_map();
  if (map.scale == nullptr) {
    if (out.data() != g.data()) out.copy_from(g);
    return;
  }
  const int64_t cols = g.cols();
  const float* from = g.as<float>();
  float* to = out.as<float>();
  if (map.per_tensor()) return scale(g.numel(), from, *map.scale, to);
  parallel_ranges(g.rows(), std::max(int64_t{1}, kGrain / std::max(int64_t{1}, cols)), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t c = 0; c < cols; ++c) to[r * cols + c] = from[r * cols + c] * map.scale[map.index(r, c)];
  });
}

}  // namespace detail

void Quantizer::leaf_backward(const QuantSpec& spec, const QuantParams& params, const Tensor& master,
                              const Tensor& g_value, const Tensor& g_master) const {
  require_gradient(name(), master, master.shape(), "the master");
  require_gradient(name(), g_value, master.shape(), "the gradient of the value");
  require_gradient(name(), g_master, master.shape(), "the gradient of the master");
  if (master.numel() == 0) return;
  const SteRule rule = spec.ste.value_or(default_ste());
  float* out = g_master.as<float>();
  if (rule == SteRule::kNone) {
    std::fill(out, out + g_master.numel(), 0.0f);
    return;
  }
  const Tensor& g = spec.alpha ? g_master : g_value;
  if (spec.alpha) detail::times_scale(params, g_value, g_master);
  const CodeRange range = code_range(spec);
  if (rule == SteRule::kApproxSign) {
    approx_sign(master.as<float>(), g.as<float>(), master.numel(), out);
  } else if (rule == SteRule::kClip && range.rule != CodeRule::kCodebook) {
    const Tensor scaled = master.with_quant(std::make_shared<const QuantParams>(params));
    const detail::KernelScales scales(range, scaled);
    clip(spec, range, scales.map(), master, g.as<float>(), out);
  } else if (g.data() != g_master.data()) {
    g_master.copy_from(g);
  }
}

Tensor straight_through(const QuantSpec& spec, const Tensor& g, const Tensor& mask, const Tensor& x_if_needed) {
  require_gradient("straight_through", g, g.shape(), "the gradient");
  const SteRule rule = ste_rule(spec);
  if (rule == SteRule::kNone) return Tensor::zeros(g.shape(), dtypes::fp32);
  if (rule == SteRule::kIdentity || (rule == SteRule::kClip && !mask.defined())) return g;
  const Tensor gx = Tensor::empty(g.shape(), dtypes::fp32);
  if (g.numel() == 0) return gx;
  if (rule == SteRule::kApproxSign) {
    require_gradient("straight_through", x_if_needed, g.shape(), "x of rule approx_sign");
    approx_sign(x_if_needed.as<float>(), g.as<float>(), g.numel(), gx.as<float>());
    return gx;
  }
  require(mask.dtype() == dtypes::bint1 && mask.rows() == g.rows() && mask.cols() == g.cols() && mask.contiguous(),
          "straight_through", "the mask: got ", mask, ", expected bits of [", g.rows(), ',', g.cols(), "] for ", g,
          '.');
  apply_mask({g.rows(), g.cols(), g.as<float>(), static_cast<const uint64_t*>(mask.data()), 1.0f, gx.as<float>()});
  return gx;
}

}  // namespace bitgrad
