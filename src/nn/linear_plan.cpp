#include "nn/linear_plan.h"

#include "bitgrad/ops/product.h"

namespace bitgrad::detail {
namespace {

constexpr std::string_view kLinearLayer = "linear";

bool per_row(const Granularity& g) {
  return g.kind == Granularity::kToken || (g.kind == Granularity::kChannel && g.axis == 0);
}

ProductForm product_form(const LinearForm& form, const TensorMeta& in) {
  ProductForm p;
  p.x.rows = in.rows;
  p.x.cols = in.features;
  p.x.dtype = in.dtype;
  p.x.scales = in.granularity;
  p.x.zero_point = in.zero_point;
  p.x.offset = in.offset;
  p.w = form_of(form.weight.value());
  p.bias = form.bias;
  p.integer_out = form.compute == Compute::kInteger;
  const bool modes = form.compute == Compute::kInt && in.training;
  p.gx = modes && in.grad;
  p.gw = modes && !form.weight.spec().frozen;
  p.modes = form.modes;
  return p;
}

// What integer_linear can do: docs/numerics.md section 4.
void plan_integer(const LinearForm& form, const TensorMeta& in, TensorMeta& y) {
  const std::string_view hint =
      ". Put a quantize layer of int, uint or sign codes before it, with a scheme such as "
      "symmetric or lsq, or use compute: int.";
  require(in.dtype.is_code() && is_integer(in.dtype), kLinearLayer, "compute: integer needs quantized input: got ",
          in.dtype, hint);
  require(!in.zero_point && !in.offset, kLinearLayer, "compute: integer needs input without ",
          in.offset ? "offset" : "zero points", ": got ", in.dtype, hint);
  const Granularity x = in.granularity.value_or(Granularity::tensor());
  require(x.kind == Granularity::kTensor || per_row(x), kLinearLayer,
          "compute: integer needs input with scales per tensor or token: got ", x, hint);
  const bool per_token = per_row(x);
  require(!per_token || !form.bias, kLinearLayer,
          "compute: integer with a bias needs input with a scale per tensor: got ", x, ". Leave the bias out.");
  y.dtype = dtypes::int32;
  y.granularity = per_token ? Granularity::token() : Granularity::tensor();
  const Tensor& w = form.weight.value();
  require(is_integer(w.dtype()), kLinearLayer, "compute: integer needs weights of int, uint or sign codes: got ",
          w.dtype(), ". Use compute: int.");
  const int64_t most = most_products_in_int32(in.dtype, w.dtype());
  require(in.features <= most, kLinearLayer, "compute: integer sums ", in.dtype, " times ", w.dtype(),
          " in int32: got ", in.features, " features, expected at most ", most,
          ". Use compute: int, which sums in int64.");
  if (!w.quant()) return;
  const QuantParams& params = *w.quant();
  require(!params.zero && !params.offset, kLinearLayer,
          "compute: integer needs weights without zero points and offsets: got ", "scheme ", params.scheme,
          ". Use symmetric, absmax or binary.");
  if (!params.scale) return;
  const Granularity& g = params.granularity;
  require(g.kind == Granularity::kTensor || per_row(g), kLinearLayer,
          "compute: integer needs weights with scales per tensor or channel(0): got ", g, ". Use compute: int.");
  const bool per_channel = per_row(g);
  require(!per_channel || !per_token, kLinearLayer,
          "compute: integer has one scale a row or one a column: got input per ", x, " and weights per ", g,
          ". Make one of them per tensor.");
  if (per_channel) y.granularity = Granularity::channel(1);
}

// The layouts that the products of this shape read.
void plan_layouts(const LinearForm& form, const ProductForm& product, const TensorMeta& in) {
  const ProductPlan plan = plan_product(product);
  form.weight.add_layout(plan.w_layout);
  const ParameterSpec& spec = form.weight.spec();
  const bool groups = spec.quant && spec.quant->granularity.kind == Granularity::kGroup;
  if (plan.w_transposed && form.weight.low_bit() && !groups) form.weight.add_layout(layouts::transposed);
  if (in.turned != nullptr) *in.turned = *in.turned || plan.x_transposed;
}

}  // namespace

void check_compute(const LinearForm& form) {
  const bool plain = form.modes.gx == ProductMode::kFp32 && form.modes.gw == ProductMode::kFp32;
  require(plain || form.compute == Compute::kInt, kLinearLayer, "compute: ", compute_name(form.compute),
          " has backward products in fp32: got gx ", mode_name(form.modes.gx), ", gw ", mode_name(form.modes.gw),
          ". Use compute: int for other modes.");
  require(form.compute != Compute::kInteger || form.weight.low_bit(), kLinearLayer,
          "compute: integer needs quantized weights: got fp32. Give them an integer dtype, or use compute: int.");
}

TensorMeta plan_linear(const LinearForm& form, const TensorMeta& in) {
  check_compute(form);
  require(in.features == form.weight.shape().cols(), kLinearLayer, "x has ", in.features, " features, w expects ",
          form.weight.shape().cols());
  require(in.dtype == dtypes::fp32 || in.dtype.is_code(), kLinearLayer, "needs codes or fp32 input, got ", in.dtype,
          ". Put quantize or dequantize before it.");
  TensorMeta y;
  y.rows = in.rows;
  y.features = form.weight.shape().rows();
  y.training = in.training;
  y.grad = in.grad || !form.weight.spec().frozen || form.bias;
  if (form.compute == Compute::kInteger) plan_integer(form, in, y);
  const ProductForm product = product_form(form, in);
  // Before initialize the weights have no scales to check yet; the plan with rows comes after it.
  if (!form.weight.low_bit() || form.weight.value().quant()) check_modes(product);
  if (form.compute != Compute::kFake && in.rows > 0) plan_layouts(form, product, in);
  return y;
}

}  // namespace bitgrad::detail
