#include "nn/linear_plan.h"

#include "bitgrad/dtype/codec.h"
#include "bitgrad/kernels/gemm.h"
#include "ops/common.h"
#include "ops/linear_product.h"
#include "ops/linear_turned.h"

namespace bitgrad::detail {
namespace {

constexpr std::string_view kLinearLayer = "linear";

bool per_row(const Granularity& g) {
  return g.kind == Granularity::kToken || (g.kind == Granularity::kChannel && g.axis == 0);
}

// A tensor of the form of `in`, two rows, with scales that nobody reads: what checks and the choice of a kernel ask of.
Tensor stand_in(const Form& in, const std::string& scheme = {}) {
  const Tensor x = Tensor::zeros({2, in.features()}, in.dtype, MemoryKind::kWorkspace);
  if (!in.scales) return x;
  QuantParams params;
  params.scheme = scheme;
  params.granularity = in.scales->granularity;
  const Shape count{scale_count(params.granularity, 2, in.features())};
  const auto filled = [&](DType dtype, double number) {
    return std::make_shared<const Tensor>(Tensor::full(count, dtype, number, MemoryKind::kWorkspace));
  };
  params.scale = filled(dtypes::fp32, 1);
  if (in.scales->zero_point) params.zero = filled(dtypes::int32, 0);
  if (in.scales->offset) params.offset = filled(dtypes::fp32, 0);
  return x.with_quant(std::make_shared<const QuantParams>(std::move(params)));
}

// The weight, or before initialize one of its form.
Tensor weight_of(const LinearForm& form) {
  const Parameter& w = form.weight;
  if (w.allocated()) return w.value();
  Form rows;
  rows.sample = {w.shape().cols()};
  rows.dtype = w.dtype();
  if (!w.low_bit()) return stand_in(rows);
  rows.scales = scale_form(*w.spec().quant);
  return stand_in(rows, w.spec().quant->scheme);
}

void check_modes(const LinearForm& form, const Form& in) {
  if (!in.training) return;
  if (in.grad)
    check_product(form.modes.gx, {"gx",
                                  "w",
                                  {},
                                  false,
                                  weight_of(form),
                                  form.modes.gx_per_group,
                                  {},
                                  /*form_only=*/!form.weight.allocated()});
  if (!form.weight.spec().frozen) check_product(form.modes.gw, {"gw", "x", {}, true, stand_in(in), false, {}, true});
}

// What integer_linear can do: docs/numerics.md section 4.
void plan_integer(const LinearForm& form, const Form& in, Form& y) {
  const std::string_view hint =
      ". Put a quantize layer of int, uint or sign codes before it, with a scheme such as "
      "symmetric or lsq, or use compute: int.";
  require(in.dtype.is_code() && is_integer(in.dtype), kLinearLayer, "compute: integer needs quantized input: got ",
          in.dtype, hint);
  const ScaleForm scales = in.scales.value_or(ScaleForm{});
  require(!scales.zero_point && !scales.offset, kLinearLayer, "compute: integer needs input without ",
          scales.offset ? "offset" : "zero points", ": got ", in.dtype, hint);
  const Granularity& x = scales.granularity;
  require(x.kind == Granularity::kTensor || per_row(x), kLinearLayer,
          "compute: integer needs input with scales per tensor or token: got ", x, hint);
  const bool per_token = per_row(x);
  require(!per_token || !form.bias, kLinearLayer,
          "compute: integer with a bias needs input with a scale per tensor: got ", x, ". Leave the bias out.");
  y.dtype = dtypes::int32;
  y.scales = {per_token ? Granularity::token() : Granularity::tensor()};
  const Tensor w = weight_of(form);
  require(is_integer(w.dtype()), kLinearLayer, "compute: integer needs weights of int, uint or sign codes: got ",
          w.dtype(), ". Use compute: int.");
  const int64_t most = most_products_in_int32(in.dtype, w.dtype());
  require(in.features() <= most, kLinearLayer, "compute: integer sums ", in.dtype, " times ", w.dtype(),
          " in int32: got ", in.features(), " features, expected at most ", most,
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
  if (per_channel) y.scales = {Granularity::channel(1)};
}

// The product of this shape, with numbers that nobody reads: which row would run, and in which layout would it read
// the weight?
void plan_layout(const LinearForm& form, const Form& in) {
  static const float kNumber = 1.0f;
  const Tensor x = stand_in(in);
  GemmArgs args;
  args.m = in.rows();
  args.n = form.weight.shape().rows();
  args.k = in.features();
  args.ldc = args.n;
  args.a.dtype = in.dtype;
  args.a.stride = row_bytes_memory(in.dtype, args.k);
  const Tensor w = weight_of(form);
  args.b.dtype = w.dtype();
  args.b.stride = row_bytes_memory(args.b.dtype, args.k);
  if (form.compute == Compute::kInteger) {
    args.c_dtype = dtypes::int32;
  } else {
    args.bias = form.bias ? &kNumber : nullptr;
    args.a.scale = x.scale_map();
    args.b.scale = w.scale_map();
  }
  form.weight.add_layout(plan_gemm(args).b_layout);
}

// Backward products in int8: what they read in layout transposed on a device.
void plan_turned(const LinearForm& form, const Form& in, PlanRequests& requests) {
  Parameter& w = form.weight;
  const int64_t out = w.shape().rows();
  const bool grouped = w.low_bit() && w.spec().quant->granularity.kind == Granularity::kGroup;
  if (in.grad && form.modes.gx == ProductMode::kInt8 && w.low_bit() && !grouped &&
      prefers_turned(w.dtype(), in.rows(), in.features(), out, /*a_k_major=*/false))
    w.add_layout(layouts::transposed);
  if (in.dtype.is_code() && form.modes.gw == ProductMode::kInt8 && !w.spec().frozen &&
      prefers_turned(in.dtype, out, in.features(), in.rows(), /*a_k_major=*/true))
    requests.request(layouts::transposed);
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

Form plan_linear(const LinearForm& form, const Form& in, PlanRequests& requests) {
  check_compute(form);
  require(in.features() == form.weight.shape().cols(), kLinearLayer, "x has ", in.features(), " features, w expects ",
          form.weight.shape().cols());
  require(in.dtype == dtypes::fp32 || in.dtype.is_code(), kLinearLayer, "needs codes or fp32 input, got ", in.dtype,
          ". Put quantize or dequantize before it.");
  Form y = in.with_features(form.weight.shape().rows());
  y.dtype = dtypes::fp32;
  y.scales.reset();
  y.grad = in.grad || !form.weight.spec().frozen || form.bias;
  if (form.compute == Compute::kInteger) plan_integer(form, in, y);
  if (form.compute == Compute::kInt) check_modes(form, in);
  if (form.compute != Compute::kFake && in.samples > 0) plan_layout(form, in);
  if (form.compute == Compute::kInt && in.samples > 0 && in.training) plan_turned(form, in, requests);
  return y;
}

}  // namespace bitgrad::detail
