#include "nn/slot_product.h"

#include "bitgrad/ops/product.h"
#include "nn/values.h"

namespace bitgrad::detail {
namespace {

constexpr std::string_view kLinearLayer = "linear", kConvLayer = "conv2d";

std::string_view layer_of(const SlotProduct& form) { return form.conv != nullptr ? kConvLayer : kLinearLayer; }

// Form of the weight, or before initialize of what it will be.
OperandForm weight_form(const Parameter& w) {
  if (w.value().defined()) return form_of(w.value());
  OperandForm form;
  form.rows = w.shape().rows();
  form.cols = w.shape().cols();
  form.dtype = w.spec().dtype();
  if (!w.low_bit()) return form;
  const std::shared_ptr<const QuantParams> params = params_form(*w.spec().quant);
  form.scheme = params->scheme;
  form.scales = params->granularity;
  form.unit_scale = params->scale == nullptr;
  form.zero_point = params->zero != nullptr;
  form.offset = params->offset != nullptr;
  return form;
}

ProductForm product_form(const SlotProduct& form, const Form& in) {
  ProductForm p;
  p.x.rows = in.rows();
  p.x.cols = in.features();
  p.x.dtype = in.dtype;
  if (in.scales) {
    p.x.scales = in.scales->granularity;
    p.x.zero_point = in.scales->zero_point;
    p.x.offset = in.scales->offset;
  }
  if (form.conv != nullptr) {
    p.x = windows_form(p.x, in.shape(), *form.conv);
    p.taps = form.conv->kernel[0] * form.conv->kernel[1];
  }
  p.w = weight_form(form.weight);
  p.bias = form.bias;
  p.y = in.float_output();
  p.integer_out = form.compute == Compute::kIntegerOut;
  const bool modes = form.compute == Compute::kPacked && in.training;
  p.gx = modes && in.grad;
  p.gw = modes && form.weight.trains();
  p.modes = form.modes;
  p.row_alone = in.causal && !in.training;
  return p;
}

// Checks what integer_linear supports (docs/numerics.md section 4) and sets dtype and scales of y.
void plan_integer(const SlotProduct& form, const Form& in, const ProductForm& product, Form& y) {
  const std::string_view where = layer_of(form);
  const OperandForm& w = product.w;
  const std::string_view hint =
      ". Put a quantize layer of int, uint or sign codes before it, with a scheme such as "
      "symmetric or lsq, or use compute: packed.";
  require(in.dtype.is_code() && is_integer(in.dtype), where, "compute: integer_out needs quantized input: got ",
          in.dtype, hint);
  const ScaleForm scales = in.scales.value_or(ScaleForm{});
  require(!scales.zero_point && !scales.offset, where, "compute: integer_out needs input without ",
          scales.offset ? "offset" : "zero points", ": got ", in.dtype, hint);
  const Granularity& x = scales.granularity;
  require(x.kind == Granularity::kTensor || x.per_row(), where,
          "compute: integer_out needs input with scales per tensor or token: got ", x, hint);
  const bool per_token = x.per_row();
  require(!per_token || form.conv == nullptr, where, "compute: integer_out needs input with scales per tensor: got ", x,
          hint);
  require(!per_token || !form.bias, where, "compute: integer_out with a bias needs input with a scale per tensor: got ",
          x, ". Leave the bias out.");
  y.dtype = dtypes::int32;
  y.scales = {per_token ? Granularity::token() : Granularity::tensor()};
  require(is_integer(w.dtype), where, "compute: integer_out needs weights of int, uint or sign codes: got ", w.dtype,
          ". Use compute: packed.");
  const int64_t max = most_products_in_int32(in.dtype, w.dtype);
  require(w.cols <= max, where, "compute: integer_out sums ", in.dtype, " times ", w.dtype, " in int32: got ", w.cols,
          form.conv ? " values of a window" : " features", ", expected at most ", max,
          ". Use compute: packed, which sums in int64.");
  require(!w.zero_point && !w.offset, where, "compute: integer_out needs weights without zero points and offsets: got ",
          "scheme ", w.scheme, ". Use symmetric, absmax or binary.");
  if (!w.scales || w.unit_scale) return;
  const Granularity& g = *w.scales;
  require(g.kind == Granularity::kTensor || g.per_row(), where,
          "compute: integer_out needs weights with scales per tensor or channel(0): got ", g, ". Use compute: packed.");
  const bool per_channel = g.per_row();
  require(!per_channel || !per_token, where,
          "compute: integer_out has one scale per row or one per column: got input per ", x, " and weights per ", g,
          ". Set one of them to per tensor.");
  if (per_channel) y.scales = {Granularity::channel(1)};
}

// Requests the layouts that the products of this shape read.
void plan_layouts(const SlotProduct& form, const ProductForm& product, const Form& in, PlanRequests& requests) {
  const ProductPlan plan = plan_product(product);
  form.weight.memory().add_layout(plan.w_layout);
  const ParameterSpec& spec = form.weight.spec();
  const bool groups = spec.quant && spec.quant->granularity.kind == Granularity::kGroup;
  if (plan.w_transposed && form.weight.low_bit() && !groups) form.weight.memory().add_layout(layouts::transposed);
  if (plan.x_transposed && in.dtype.is_code()) requests.request(layouts::transposed);
}

}  // namespace

void check_compute(const SlotProduct& form) {
  const bool plain = form.modes.gx == ProductMode::kFp32 && form.modes.gw == ProductMode::kFp32;
  require(plain || form.compute == Compute::kPacked, layer_of(form), "compute: ", enum_name(form.compute),
          " has backward products in fp32: got gx ", enum_name(form.modes.gx), ", gw ", enum_name(form.modes.gw),
          ". Use compute: packed for other modes.");
  require(form.compute != Compute::kIntegerOut || form.weight.low_bit(), layer_of(form),
          "compute: integer_out needs quantized weights: got fp32. Set an integer dtype, or use compute: packed.");
}

namespace {

// Shape of the output; its dtype is not known yet.
Form output_form(const SlotProduct& form, const Form& in) {
  const Shape& w = form.weight.shape();
  if (form.conv == nullptr) {
    require(in.features() == w.cols(), kLinearLayer, "x has ", in.features(), " features, w expects ", w.cols());
    return in.with_features(w.rows());
  }
  require(in.sample.rank() == 3, kConvLayer, "needs samples [h,w,c], got ", in);
  const int64_t k = form.conv->kernel[0] * form.conv->kernel[1] * in.features() / form.conv->groups;
  require(k == w.cols(), kConvLayer, "a window has ", k, " values, w expects ", w.cols());
  const auto [oh, ow] = conv2d_output(in.sample[0], in.sample[1], *form.conv);
  Form y = in;
  y.sample = {oh, ow, w.rows()};
  return y;
}

// Rejects scales that differ within a window, and pad values that x has no code for.
void check_windows(const Conv2dOptions& options, const Form& in) {
  if (in.scales) {
    const Granularity& g = in.scales->granularity;
    require(g.kind == Granularity::kTensor || (g.kind == Granularity::kChannel && g.axis == 1), kConvLayer,
            "needs input with scales per tensor or channel(1), which are the same in a whole window: got ", g,
            ". Set granularity: tensor, or use observed ranges (bitgrad quantize --observer min_max)");
  }
  const bool signs = in.dtype.kind() == DTypeKind::kSign && !(in.scales && in.scales->offset);
  require(options.pad_value == 0 || signs || in.dtype.is_float(), kConvLayer, "pad_value ", options.pad_value, ": got ",
          in, ", expected input of a sign dtype without real offsets, or floats. Use pad_value 0");
}

}  // namespace

Form plan_slot_product(const SlotProduct& form, const Form& in, PlanRequests& requests) {
  check_compute(form);
  require(is_values(in.dtype) || in.dtype.is_code(), form.conv ? kConvLayer : kLinearLayer,
          "needs codes or fp32 input, got ", in.dtype, ". Put quantize or dequantize before it.");
  if (form.conv != nullptr) check_windows(*form.conv, in);
  Form y = output_form(form, in);
  y.dtype = in.float_output();
  y.scales.reset();
  y.grad = in.grad || form.weight.trains() || form.bias;
  const ProductForm product = product_form(form, in);
  if (form.compute == Compute::kIntegerOut) plan_integer(form, in, product, y);
  check_modes(product);
  const bool groups = form.conv != nullptr && form.conv->groups > 1;  // grouped convolutions read canonical rows of w
  if (form.compute != Compute::kSimulated && in.samples > 0 && !groups) plan_layouts(form, product, in, requests);
  return y;
}

}  // namespace bitgrad::detail
