// y[n,oy,ox,j] = sum over taps and channels of x * w[j, (ky,kx,i)] (+ bias[j]): docs/numerics.md sections 4 and 5,
// "Convolutions". Windows are gathered as codes, one block of rows at a time, and multiplied like the rows of linear;
// the matrix of all windows is never materialized. A convolution whose windows are single pixels is computed as that
// product directly.
#include "bitgrad/ops/spatial.h"

#include <algorithm>

#include "kernels/flag.h"
#include "ops/common.h"
#include "ops/integer_product.h"
#include "ops/map/codes.h"
#include "ops/product/depthwise.h"
#include "ops/product/gradient.h"
#include "ops/product/operand.h"
#include "ops/product/windows_gradient.h"

namespace bitgrad {
namespace {

constexpr std::string_view kConv = "conv2d";

// Padding pixels use the zero point of their channel as code. Zero points from a plugin's scheme need not be valid
// codes.
void check_zero_points(std::string_view where, const Tensor& x) {
  const DType codes = x.dtype().kind() == DTypeKind::kSign ? dtypes::ternary : x.dtype();
  const int64_t lo = codes.info().qmin, hi = codes.info().qmax;
  const FlagWord flag;
  run_map(maps::FlagOutside{x.scale_map().zero, lo, hi, flag.word()}, x.quant()->zero->numel());
  flag.check([where, shape = x.shape(), dtype = x.dtype(), lo, hi] {
    fail(where, "x ", shape, ' ', dtype, " has no code for pixels outside: a zero point is not among the codes ", lo,
         " to ", hi, ". Use zero points that are codes, or no padding");
  });
}

detail::ConvForm checked_form(std::string_view where, const Tensor& x, const Tensor& w, const Conv2dOptions& options) {
  require(x.shape().rank() == 4 && w.shape().rank() == 2, where, "x must be images [n,h,w,c] and w a matrix: got x ", x,
          ", w ", w);
  const detail::ConvForm form = detail::conv_form(where, x.shape(), w.rows(), options);
  require(w.cols() == form.k(), where, "a window has ", form.geometry.taps(), " x ", form.group_channels(), " = ",
          form.k(), " values, w expects ", w.cols(), " (x ", x, ", w ", w, ")");
  if (x.quant()) {
    const Granularity& g = x.quant()->granularity;
    require(g.kind == Granularity::kTensor || (g.kind == Granularity::kChannel && g.axis == 1), where, "x ", x,
            " has scales per ", g, ", which differ within a window: expected per tensor or channel(1)");
    if (x.quant()->zero && form.pads && options.pad_value == 0) check_zero_points(where, x);
  }
  if (w.quant() && form.groups > 1) {
    const Granularity& g = w.quant()->granularity;
    require(g.kind != Granularity::kGroup || g.axis != 0 || form.group_outputs() % g.group == 0, where, "w ", w,
            " has scales per ", g, ", which the ", form.groups, " groups of ", form.group_outputs(),
            " outputs cut. Use a size that divides ", form.group_outputs(), ", or scales per channel(0)");
  }
  const bool signs = x.dtype().kind() == DTypeKind::kSign && !(x.quant() && x.quant()->offset);
  require(options.pad_value == 0 || signs || x.dtype().is_float(), where, "pad_value ", options.pad_value, ": x is ", x,
          ", expected a sign dtype without real offsets, or floats. Use pad_value 0");
  return form;
}

detail::GradientProduct conv_product_gx(const Tensor& gy, const Tensor& w) {
  return {"gx", "w", gy, false, w, false, std::nullopt};
}
detail::GradientProduct conv_product_gw(const Tensor& gy, const Tensor& x) {
  return {"gw", "x", gy, true, x, false, std::nullopt};
}

detail::GradientForm named(detail::GradientForm form) {
  form.where = kConv;
  form.windows = true;
  return form;
}

// y [n,oh,ow,o] = windows(x) w^T (+ bias).
void forward(const Tensor& x, const Tensor& w, const Tensor& bias, const detail::ConvForm& form, const Tensor& y) {
  if (form.pointwise()) return detail::forward_product(x, w, bias, y);
  if (detail::direct_forward(form, x, w, bias, y)) return;
  if (detail::has_depthwise_forward(x, w, form)) return detail::depthwise_forward(x, w, bias, form, y);
  const Tensor image = detail::gatherable(x, form), rows = y.reshape({form.rows(), form.outputs});
  for (int64_t g = 0; g < form.groups; ++g) {
    const detail::WindowsOperand windows(image, form, g, detail::WindowsOperand::Use::kFree);
    const int64_t n = form.group_outputs();
    const Tensor part = form.groups == 1 ? rows : rows.column_slice(g * n, (g + 1) * n);
    const Tensor offsets = bias.defined() ? detail::group_rows(bias.reshape({form.outputs, 1}), form, g) : Tensor();
    detail::forward_product(windows, detail::group_rows(w, form, g), offsets, part);
  }
}

Shape output_shape(const detail::ConvForm& form) {
  return {form.samples, form.geometry.oh, form.geometry.ow, form.outputs};
}

struct Conv2d {
  static constexpr std::string_view kName = kConv;
  struct Saved {
    Tensor x, w;
    detail::ConvForm form;
    bool bias = false;
    ProductModes modes;
    std::optional<RandomStream> sr;
  };

  static Tensor forward(Saved& s, std::span<const Tensor> in, const Conv2dOptions& options, const ProductModes& modes) {
    const Tensor &x = in[0], &w = in[1];
    s.form = checked_form(kName, x, w, options);
    const bool f64 = x.dtype() == dtypes::fp64;
    require_result(kName, modes.y);
    const Tensor bias = checked_bias(kName, in);
    Tensor y = Tensor::empty(output_shape(s.form), f64 ? dtypes::fp64 : modes.y);
    bitgrad::forward(x, w, f64 ? Tensor() : bias, s.form, y);
    if (f64 && bias.defined())
      for (int64_t i = 0; i < y.numel(); ++i) y.as<double>()[i] += bias.as<double>()[i % y.cols()];
    s.x = keep(x);
    s.w = keep(w);
    s.bias = bias.defined();
    s.modes = modes;
    if (modes.sr != nullptr) s.sr = *modes.sr;
    s.modes.sr = nullptr;
    return y;
  }

  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    detail::ConvGradient part{s.form, gy[0], s.modes.gx, s.sr};
    if (g[0].wanted()) detail::conv_gx(part, s.w, g[0]);
    part.mode = s.modes.gw;
    if (part.sr) part.sr->purpose = Purpose::kGradientWeight;
    if (g[1].wanted()) detail::conv_gw(part, s.x, g[1]);
    if (s.bias && g[2].wanted()) g[2].set_rounded(column_sums(wide(gy[0])));
  }
};

struct IntegerConv2d {
  static constexpr std::string_view kName = "integer_conv2d";
  struct Saved {
    Tensor x, w;
    detail::ConvForm form;
    bool bias = false;
  };

  static Tensor forward(Saved& s, std::span<const Tensor> in, const Conv2dOptions& options) {
    const Tensor &x = in[0], &w = in[1], bias = in.size() > 2 ? in[2] : Tensor();
    s.form = checked_form(kName, x, w, options);
    detail::check_integer_product(kName, x, w, bias, s.form.k());
    require(x.scale_map().per_tensor(), kName, "x: got scales per ", x.quant()->granularity,
            ", expected one per tensor");
    const auto params = detail::integer_product_params(x, w);
    const Tensor offsets = bias.defined() ? detail::rounded_bias(kName, bias, *params) : Tensor();
    const Tensor y = Tensor::empty(output_shape(s.form), dtypes::int32);
    bitgrad::forward(x.without_quant(), w.without_quant(), {}, s.form, y);
    if (bias.defined()) detail::add_integer_bias(y, offsets);
    s.x = keep(x);
    s.w = keep(w);
    s.bias = bias.defined();
    return y.with_quant(params);
  }

  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    const detail::ConvGradient part{s.form, gy[0]};
    if (g[0].wanted()) detail::conv_gx(part, s.w, g[0]);
    if (g[1].wanted()) detail::conv_gw(part, s.x, g[1]);
    if (s.bias && g[2].wanted()) g[2].set_rounded(column_sums(wide(gy[0])));
  }
};

}  // namespace

Var conv2d(const Var& x, const Var& w, const Var& bias, const Conv2dOptions& options, const ProductModes& modes) {
  if (x.tracked() && w.defined()) {
    check_product(modes.gx, named(conv_product_gx({}, w.value()).form()));
    detail::check_conv_gx(modes.gx, form_of(w.value()), std::max<int64_t>(1, options.kernel[0] * options.kernel[1]));
  }
  if (w.tracked() && x.defined()) check_product(modes.gw, named(conv_product_gw({}, x.value()).form()));
  return bias.defined() ? apply<Conv2d>({x, w, bias}, options, modes) : apply<Conv2d>({x, w}, options, modes);
}

Var integer_conv2d(const Var& x, const Var& w, const Var& bias, const Conv2dOptions& options) {
  return bias.defined() ? apply<IntegerConv2d>({x, w, bias}, options) : apply<IntegerConv2d>({x, w}, options);
}

Var conv2d_simulated(const Var& x, const Var& w, const Var& bias, const Conv2dOptions& options, DType y) {
  const auto as_float = [](const Var& v) { return v.dtype().is_float() && !v.value().quant() ? v : dequantize(v); };
  if (options.pad_value != 0 && x.value().quant())
    require(x.value().quant()->scale == nullptr, kConv, "the float simulation pads with ", options.pad_value,
            " and knows no scale of x ", x.value(), ". Use compute: packed, or pad_value 0");
  ProductModes modes;
  modes.y = y;
  return conv2d(as_float(x), as_float(w), bias, options, modes);
}

}  // namespace bitgrad
