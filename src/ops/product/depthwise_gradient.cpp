// The two backward products of a depthwise convolution.
#include <algorithm>

#include "ops/common.h"
#include "ops/map/depthwise.h"
#include "ops/product/depthwise.h"
#include "ops/product/depthwise_operands.h"
#include "ops/product/fold.h"
#include "ops/product/gradient.h"

namespace bitgrad::detail {
namespace {

// gy [rows, outputs] as images; its rows are multiplied by the scale of the other operand if that scale is folded.
kernels::DepthwiseImages gradient_images(const Tensor& gy, const ConvForm& form, const ScaleMap& fold) {
  return {gy.data(), gy.dtype(), gy.stride(), gy.stride() * form.geometry.windows(), fold};
}

// Operands of modes fp32 and bf16: gy, folded and rounded as the mode requires, and the parameters that stay with the
// other operand.
struct FloatOperands {
  Tensor gy;
  ScaleMap fold, other;
};
FloatOperands float_operands(const ConvGradient& g, const ScaleMap& other, bool transposed) {
  FloatOperands out{g.gy.reshape({g.form.rows(), g.form.outputs}), {}, other};
  const bool fold = folds(other);
  if (fold) out.other = {};
  if (g.mode == ProductMode::kBf16) {
    if (!fold && out.gy.dtype() == dtypes::bf16) return out;
    const Along folded = fold ? along(other, transposed ? g.form.rows() : g.form.outputs, 0) : Along{};
    const Tensor gy = out.gy;
    out.gy = to_bf16_codes(FoldedGradient(gy, transposed, folded.scales()));
  } else if (fold) {
    out.fold.scale = other.scale;
    out.fold.col_step = other.row_step;  // per row of w, i.e. per channel of gy
  }
  return out;
}

bool same_width(const Tensor& gy, const Tensor& other) {
  return gy.dtype() == dtypes::fp64 ? other.dtype() == dtypes::fp64 : opens_to_fp32(gy) && opens_to_fp32(other);
}

void gx_of_codes(const ConvGradient& g, const Tensor& w, kernels::DepthwiseGxArgs args) {
  const ConvForm& form = g.form;
  const ScaleMap map = w.scale_map();
  const Tensor codes = image_codes(g, map), weights = depthwise_weights(w, form, without_scale(map), true);
  const Tensor scale = Tensor::empty({form.samples}, dtypes::fp32, MemoryKind::kWorkspace);
  run_map(maps::DepthwiseScales{map.row_step == 0 ? map.scale : nullptr, codes.quant()->scale->as<float>(), 1, 1,
                                scale.as<float>()},
          form.samples);
  args.gy = {codes.data(), codes.dtype(), form.outputs, codes.stride(), {}};
  args.w = weights.data();
  args.image_scale = scale.as<float>();
  kernels::depthwise_gx(args);
}

void gx_of_floats(const ConvGradient& g, const Tensor& w, kernels::DepthwiseGxArgs args) {
  const FloatOperands operands = float_operands(g, w.scale_map(), false);
  const Tensor weights = depthwise_weights(w, g.form, operands.other, true);
  args.gy = gradient_images(operands.gy, g.form, operands.fold);
  args.w = weights.data();
  kernels::depthwise_gx(args);
}

// Computes the panels of gw for the operands in `args` and passes them to sum(panels, count).
template <typename Sum>
void sum_panels(const ConvGradient& g, const Tensor& x, const ScaleMap& map, kernels::DepthwiseGwArgs args, Sum&& sum) {
  const ConvForm& form = g.form;
  const int64_t count = (form.rows() + kernels::kDepthwisePanel - 1) / kernels::kDepthwisePanel;
  const DType dtype = x.dtype() == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32;
  const Tensor panels = Tensor::empty({count, form.geometry.taps(), form.outputs}, dtype, MemoryKind::kWorkspace);
  const Tensor pad = depthwise_pad(x, form, map);
  args.form = depthwise_form(form);
  args.x = depthwise_images(x, form, map);
  args.pad = data_of(pad);
  args.panels = panels.data();
  kernels::depthwise_gw(args);
  sum(panels, count);
}

void gw_of_codes(const ConvGradient& g, const Tensor& x, const Tensor& gw) {
  const ConvForm& form = g.form;
  const int64_t taps = form.geometry.taps();
  const Tensor codes = to_int8_codes(FoldedGradient(g.gy.reshape({form.rows(), form.outputs}), true, nullptr), g.sr, 0);
  const ScaleMap map = x.scale_map();
  kernels::DepthwiseGwArgs args;
  args.gy = gradient_images(codes, form, {});
  sum_panels(g, x, without_scale(map), args, [&](const Tensor& panels, int64_t count) {
    run_map(maps::DepthwiseExactPanels{panels.as<float>(), count, taps, form.outputs, codes.quant()->scale->as<float>(),
                                       map.scale, form.group_outputs(), map.col_step, gw.as<float>()},
            taps * form.outputs);
  });
}

void gw_of_floats(const ConvGradient& g, const Tensor& x, const Tensor& gw) {
  const ConvForm& form = g.form;
  const int64_t taps = form.geometry.taps();
  const FloatOperands operands = float_operands(g, x.scale_map(), true);
  kernels::DepthwiseGwArgs args;
  args.gy = gradient_images(operands.gy, form, operands.fold);
  sum_panels(g, x, operands.other, args, [&](const Tensor& panels, int64_t count) {
    run_map(maps::DepthwisePanels{panels.data(), count, taps, form.outputs, panels.dtype() == dtypes::fp64, gw.data()},
            taps * form.outputs);
  });
}

}  // namespace

bool has_depthwise_gx(const ConvGradient& g, const Tensor& w) {
  const ConvForm& form = g.form;
  if (!is_depthwise(form) || !w.in_layout(layouts::canonical).defined() || !same_width(g.gy, w)) return false;
  if (g.mode != ProductMode::kInt8) return true;
  return form.geometry.taps() * form.group_outputs() * 127 * most_of_code(w) < kExactInFp32;
}

bool has_depthwise_gw(const ConvGradient& g, const Tensor& x) { return is_depthwise(g.form) && same_width(g.gy, x); }

void depthwise_gx(const ConvGradient& g, const Tensor& w, GradSlot& slot) {
  const Tensor gx = Tensor::empty(slot.shape(), g.gy.dtype() == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32);
  kernels::DepthwiseGxArgs args;
  args.form = depthwise_form(g.form);
  args.gx = gx.data();
  if (g.form.samples > 0) g.mode == ProductMode::kInt8 ? gx_of_codes(g, w, args) : gx_of_floats(g, w, args);
  slot.set_rounded(gx);
}

void depthwise_gw(const ConvGradient& g, const Tensor& x, GradSlot& slot) {
  const Tensor gw = Tensor::empty(slot.shape(), g.gy.dtype() == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32);
  g.mode == ProductMode::kInt8 ? gw_of_codes(g, x, gw) : gw_of_floats(g, x, gw);
  slot.set_rounded(gw);
}

}  // namespace bitgrad::detail
