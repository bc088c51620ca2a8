#include "ops/product/depthwise.h"

#include <algorithm>

#include "bitgrad/dtype/codec.h"
#include "bitgrad/kernels/gemm.h"
#include "kernels/conv.h"
#include "kernels/quantize.h"
#include "ops/common.h"
#include "ops/map/depthwise.h"
#include "ops/product/fold.h"
#include "ops/product/gradient.h"

namespace bitgrad::detail {
namespace {

constexpr int64_t kMostTaps = 512;  // one panel of chain512
thread_local int without_depthwise = 0;
constexpr int64_t kExactInFp32 = int64_t{1} << 24;

ScaleMap without_scale(ScaleMap map) {
  map.scale = nullptr;
  return map;
}
const void* data_of(const Tensor& t) { return t.defined() ? t.data() : nullptr; }

// How a product is computed from sums: gemm.h.
enum class DepthwiseProduct { kFloats, kPlain, kOffsets, kGroups };

DepthwiseProduct depthwise_product(const Tensor& x, const Tensor& w, const ConvForm& form) {
  kernels::GemmArgs args;
  args.m = args.n = 1;
  args.k = form.k();
  args.a.scale = x.scale_map();
  args.a.dtype = gathered_dtype(x.dtype(), args.a.scale.offset != nullptr, form);
  if (args.a.dtype.is_float()) return DepthwiseProduct::kFloats;
  args.b.dtype = w.dtype();
  args.b.scale = w.scale_map();
  if (!kernels::gemm_is_integer(args)) return DepthwiseProduct::kFloats;
  if (args.b.scale.col_step != 0) return DepthwiseProduct::kGroups;
  const bool offsets = args.a.scale.offset != nullptr || args.b.scale.offset != nullptr;
  return offsets ? DepthwiseProduct::kOffsets : DepthwiseProduct::kPlain;
}

// Whether x has codes of at most 8 bits, fp32 or bf16.
bool opens_to_fp32(const Tensor& t) {
  const DType d = t.dtype();
  return d == dtypes::fp32 || d == dtypes::bf16 || (d.is_code() && d.bits() <= 8);
}

// The largest abs(q - z) of the codes.
int64_t most_of_code(const Tensor& t) {
  const DTypeInfo& info = t.dtype().info();
  if (t.scale_map().zero != nullptr) return (int64_t{1} << info.bits) - 1;
  return std::max<int64_t>(1, std::max<int64_t>(-info.qmin, info.qmax));
}

kernels::DepthwiseForm depthwise_form(const ConvForm& form) {
  return {form.geometry, form.samples, form.channels, form.group_outputs()};
}

// Images [n,h,w,c], with these parameters instead of their own.
kernels::DepthwiseImages depthwise_images(const Tensor& images, const ConvForm& form, const ScaleMap& map) {
  return {images.data(), images.dtype(), images.stride(), images.stride() * form.geometry.pixels(), map};
}

// A padding pixel in the form the kernels read if pad_value is not 0: pad_value times the scale of `map`; else
// undefined.
Tensor depthwise_pad(const Tensor& image, const ConvForm& form, const ScaleMap& map) {
  if (form.pad_value == 0 || !form.pads) return {};
  if (image.dtype() == dtypes::fp64)
    return Tensor::full({form.channels}, dtypes::fp64, form.pad_value, MemoryKind::kWorkspace);
  Tensor pad = Tensor::empty({form.channels}, dtypes::fp32, MemoryKind::kWorkspace);
  run_map(maps::DepthwisePad{static_cast<float>(form.pad_value), map.scale, map.zero, map.col_step, pad.as<float>()},
          form.channels);
  return pad;
}

// Values of w under these parameters, fp32 (fp64 if w is fp64): [taps, outputs]; or by multiples [taps, multiplier,
// channels].
Tensor depthwise_weights(const Tensor& weights, const ConvForm& form, const ScaleMap& map, bool by_multiples) {
  const Tensor w = weights.in_layout(layouts::canonical);
  const bool wide = w.dtype() == dtypes::fp64;
  const int64_t outputs = form.outputs, taps = form.geometry.taps();
  Tensor numbers = w;
  if (!wide) {
    numbers = Tensor::empty({outputs, taps}, dtypes::fp32, MemoryKind::kWorkspace);
    kernels::dequantize({outputs, taps, w.dtype(), w.data(), w.stride(), map, numbers.as<float>(), taps});
  }
  Tensor out = Tensor::empty({taps, outputs}, numbers.dtype(), MemoryKind::kWorkspace);
  run_map(maps::DepthwiseTaps{numbers.data(), outputs, taps, by_multiples ? form.group_outputs() : 1, wide, out.data()},
          outputs * taps);
  return out;
}

bool has_canonical(const Tensor& w) { return w.in_layout(layouts::canonical).defined(); }

}  // namespace

WithoutDepthwise::WithoutDepthwise() { ++without_depthwise; }
WithoutDepthwise::~WithoutDepthwise() { --without_depthwise; }

bool is_depthwise(const ConvForm& form) {
  return without_depthwise == 0 && form.groups > 1 && form.groups == form.channels && form.geometry.taps() <= kMostTaps;
}

bool has_depthwise_forward(const Tensor& x, const Tensor& w, const ConvForm& form) {
  if (!is_depthwise(form) || !has_canonical(w)) return false;
  if (x.dtype() == dtypes::fp64) return w.dtype() == dtypes::fp64;
  if (!opens_to_fp32(x) || !opens_to_fp32(w)) return false;
  return depthwise_product(x, w, form) == DepthwiseProduct::kFloats ||
         form.geometry.taps() * most_of_code(x) * most_of_code(w) < kExactInFp32;
}

namespace {

// One forward product.
class DepthwiseForward {
 public:
  DepthwiseForward(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvForm& form, const Tensor& y)
      : x_(x), w_(w), form_(form), y_(y), x_map_(x.scale_map()), w_map_(w.scale_map()) {
    outputs_ = form.outputs;
    taps_ = form.geometry.taps();
    bias_ = bias.defined() ? bias.as<float>() : nullptr;
  }

  void run() {
    switch (depthwise_product(x_, w_, form_)) {
      case DepthwiseProduct::kFloats:
        return floats();
      case DepthwiseProduct::kPlain:
        return plain();
      case DepthwiseProduct::kOffsets:
        return offsets();
      case DepthwiseProduct::kGroups:
        return groups();
    }
  }

 private:
  static ScaleMap numbers_map(ScaleMap map) {
    map.scale = map.offset = nullptr;
    return map;
  }
  kernels::DepthwiseForwardArgs args(const ScaleMap& x, const ScaleMap& w) {
    weights_ = depthwise_weights(w_, form_, w, false);
    pad_ = depthwise_pad(x_, form_, x);
    kernels::DepthwiseForwardArgs a;
    a.form = depthwise_form(form_);
    a.x = depthwise_images(x_, form_, x);
    a.pad = data_of(pad_);
    a.w = weights_.data();
    a.end_tap = taps_;
    a.y = y_.data();
    a.y_dtype = y_.dtype();
    return a;
  }
  // Arguments for sums of codes, without scales and offsets.
  kernels::DepthwiseForwardArgs exact_args() { return args(numbers_map(x_map_), numbers_map(w_map_)); }

  // fp32 sums over taps; `ones`: sums of x alone.
  Tensor sums(kernels::DepthwiseForwardArgs a, bool ones) {
    Tensor out = Tensor::empty({form_.rows(), outputs_}, dtypes::fp32, MemoryKind::kWorkspace);
    if (ones && !ones_.defined()) ones_ = Tensor::full({taps_, outputs_}, dtypes::fp32, 1, MemoryKind::kWorkspace);
    if (ones) a.w = ones_.data();
    a.y = out.data();
    a.y_dtype = dtypes::fp32;
    kernels::depthwise_forward(a);
    return out;
  }
  maps::DepthwiseOut out() const { return {outputs_, bias_, y_.dtype() == dtypes::bf16, y_.data()}; }

  void floats() {
    kernels::DepthwiseForwardArgs a = args(x_map_, w_map_);
    a.bias = bias_;
    kernels::depthwise_forward(a);
  }
  void plain() {
    kernels::DepthwiseForwardArgs a = exact_args();
    a.bias = bias_;
    Tensor scale;
    if (x_map_.scale != nullptr || w_map_.scale != nullptr) {
      scale = Tensor::empty({outputs_}, dtypes::fp32, MemoryKind::kWorkspace);
      run_map(maps::DepthwiseScales{x_map_.scale, w_map_.scale, w_map_.row_group, w_map_.row_step, scale.as<float>()},
              outputs_);
      a.scale = scale.as<float>();
    }
    kernels::depthwise_forward(a);
  }
  void offsets() {
    const kernels::DepthwiseForwardArgs a = exact_args();
    const Tensor sum = sums(a, false), sum_a = w_map_.offset != nullptr ? sums(a, true) : Tensor();
    Tensor sum_b;
    if (x_map_.offset != nullptr) {
      sum_b = Tensor::empty({outputs_}, dtypes::fp32, MemoryKind::kWorkspace);
      run_map(maps::DepthwiseTapSums{weights_.as<float>(), outputs_, taps_, sum_b.as<float>()}, outputs_);
    }
    run_map(
        maps::DepthwiseOffsets{sum.as<float>(), static_cast<const float*>(data_of(sum_a)),
                               static_cast<const float*>(data_of(sum_b)), static_cast<float>(taps_), x_map_.scale,
                               x_map_.offset, w_map_.scale, w_map_.offset, w_map_.row_group, w_map_.row_step, out()},
        sum.numel());
  }
  void groups() {
    kernels::DepthwiseForwardArgs a = exact_args();
    const Tensor total = Tensor::empty({form_.rows(), outputs_}, dtypes::fp32, MemoryKind::kWorkspace);
    for (int64_t t = 0, at = 0; t < taps_; t += w_map_.col_group, at += w_map_.col_step) {
      a.first_tap = t;
      a.end_tap = std::min(taps_, t + w_map_.col_group);
      const Tensor sum = sums(a, false), sum_a = w_map_.offset != nullptr ? sums(a, true) : Tensor();
      run_map(maps::DepthwiseGroup{sum.as<float>(), static_cast<const float*>(data_of(sum_a)),
                                   w_map_.scale == nullptr ? nullptr : w_map_.scale + at,
                                   w_map_.offset == nullptr ? nullptr : w_map_.offset + at, outputs_, w_map_.row_group,
                                   w_map_.row_step, t == 0, total.as<float>()},
              total.numel());
    }
    run_map(maps::DepthwiseTotals{total.as<float>(), x_map_.scale, out()}, total.numel());
  }

  const Tensor &x_, &w_;
  const ConvForm& form_;
  const Tensor& y_;
  const ScaleMap x_map_, w_map_;
  int64_t outputs_, taps_;
  const float* bias_;
  Tensor weights_, pad_, ones_;
};

}  // namespace

void depthwise_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvForm& form, const Tensor& y) {
  if (form.rows() > 0) DepthwiseForward(x, w, bias, form, y).run();
}

// ---- the two backward products

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
  if (!is_depthwise(form) || !has_canonical(w) || !same_width(g.gy, w)) return false;
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
