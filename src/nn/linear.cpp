// y[n,o] = sum_i x[n,i] w[o,i] (+ bias[o]), on packed operands, as a float simulation, or int32 with a scale.
#include <string>

#include "bitgrad/kernels/gemm.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "ops/common.h"
#include "ops/linear_product.h"

namespace bitgrad {
namespace {

constexpr std::string_view kName = "linear";

bool per_row(const Granularity& g) {
  return g.kind == Granularity::kToken || (g.kind == Granularity::kChannel && g.axis == 0);
}

// A tensor of the form of `in`, two rows, with scales that nobody reads: what checks and the choice of a kernel ask of.
Tensor stand_in(const TensorMeta& in) {
  const Tensor x = Tensor::zeros({2, in.features}, in.dtype, MemoryKind::kWorkspace);
  if (!in.granularity && !in.zero_point && !in.offset) return x;
  QuantParams params;
  params.granularity = in.granularity.value_or(Granularity::tensor());
  const Shape count{scale_count(params.granularity, 2, in.features)};
  const auto filled = [&](DType dtype, double number) {
    return std::make_shared<const Tensor>(Tensor::full(count, dtype, number, MemoryKind::kWorkspace));
  };
  params.scale = filled(dtypes::fp32, 1);
  if (in.zero_point) params.zero = filled(dtypes::int32, 0);
  if (in.offset) params.offset = filled(dtypes::fp32, 0);
  return x.with_quant(std::make_shared<const QuantParams>(std::move(params)));
}

class Linear final : public Module {
 public:
  Linear(const LayerSpec& spec, int64_t in)
      : compute_(spec.compute), weight_(add_parameter("weight", {spec.out, in}, spec.weight)) {
    if (spec.bias) bias_ = &add_parameter("bias", {spec.out}, ParameterSpec{});
    modes_.gx = spec.gx;
    modes_.gw = spec.gw;
    modes_.gx_per_group = spec.gx_per_group;
    stochastic_ = spec.gradient_rounding == Rounding::kStochastic;
    const bool plain = spec.gx == ProductMode::kFp32 && spec.gw == ProductMode::kFp32;
    require(plain || compute_ == Compute::kInt, kName, "compute: ", compute_name(compute_),
            " has backward products in fp32: got gx ", mode_name(spec.gx), ", gw ", mode_name(spec.gw),
            ". Use compute: int for other modes.");
    require(compute_ != Compute::kInteger || weight_.low_bit(), kName,
            "compute: integer needs quantized weights: got fp32. Give them an integer dtype, or use compute: int.");
  }

  Var forward(const Var& x) override {
    const Var bias = bias_ ? bias_->read() : Var();
    if (compute_ == Compute::kFake) return linear_fake(x, weight_.read(), bias);
    if (compute_ == Compute::kInteger) return integer_linear(x, weight_.read(), bias);
    draws_ = {state().seed, Purpose::kGradient, site_id(path()), static_cast<uint32_t>(state().microbatch)};
    modes_.sr = stochastic_ ? &draws_ : nullptr;
    return linear(x, weight_.read(), bias, modes_);
  }

  TensorMeta plan(const TensorMeta& in) override {
    require(in.features == weight_.shape().cols(), kName, "x has ", in.features, " features, w expects ",
            weight_.shape().cols());
    require(in.dtype == dtypes::fp32 || in.dtype.is_code(), kName, "needs codes or fp32 input, got ", in.dtype,
            ". Put quantize or dequantize before it.");
    TensorMeta y;
    y.rows = in.rows;
    y.features = weight_.shape().rows();
    y.training = in.training;
    y.grad = in.grad || !weight_.spec().frozen || bias_ != nullptr;
    if (compute_ == Compute::kInteger) plan_integer(in, y);
    if (compute_ == Compute::kInt) check_modes(in);
    if (compute_ != Compute::kFake && in.rows > 0) plan_layout(in);
    return y;
  }

 private:
  void check_modes(const TensorMeta& in) const {
    // Before initialize the weights have no scales to check yet; the plan with rows comes after it.
    if (!in.training || (weight_.low_bit() && !weight_.value().quant())) return;
    if (in.grad) detail::check_product(modes_.gx, {"gx", "w", {}, false, weight_.value(), modes_.gx_per_group, {}});
    if (!weight_.spec().frozen) detail::check_product(modes_.gw, {"gw", "x", {}, true, stand_in(in), false, {}, true});
  }

  // What integer_linear can do: docs/numerics.md section 4.
  void plan_integer(const TensorMeta& in, TensorMeta& y) const {
    const std::string_view hint =
        ". Put a quantize layer of int, uint or sign codes before it, with a scheme such as "
        "symmetric or lsq, or use compute: int.";
    require(in.dtype.is_code() && is_integer(in.dtype), kName, "compute: integer needs quantized input: got ", in.dtype,
            hint);
    require(!in.zero_point && !in.offset, kName, "compute: integer needs input without ",
            in.offset ? "offset" : "zero points", ": got ", in.dtype, hint);
    const Granularity x = in.granularity.value_or(Granularity::tensor());
    require(x.kind == Granularity::kTensor || per_row(x), kName,
            "compute: integer needs input with scales per tensor or token: got ", x, hint);
    const bool per_token = per_row(x);
    require(!per_token || bias_ == nullptr, kName,
            "compute: integer with a bias needs input with a scale per tensor: got ", x, ". Leave the bias out.");
    y.dtype = dtypes::int32;
    y.granularity = per_token ? Granularity::token() : Granularity::tensor();
    const Tensor& w = weight_.value();
    require(is_integer(w.dtype()), kName, "compute: integer needs weights of int, uint or sign codes: got ", w.dtype(),
            ". Use compute: int.");
    const int64_t most = most_products_in_int32(in.dtype, w.dtype());
    require(in.features <= most, kName, "compute: integer sums ", in.dtype, " times ", w.dtype(), " in int32: got ",
            in.features, " features, expected at most ", most, ". Use compute: int, which sums in int64.");
    if (!w.quant()) return;
    const QuantParams& params = *w.quant();
    require(!params.zero && !params.offset, kName,
            "compute: integer needs weights without zero points and offsets: got ", "scheme ", params.scheme,
            ". Use symmetric, absmax or binary.");
    if (!params.scale) return;
    const Granularity& g = params.granularity;
    require(g.kind == Granularity::kTensor || per_row(g), kName,
            "compute: integer needs weights with scales per tensor or channel(0): got ", g, ". Use compute: int.");
    const bool per_channel = per_row(g);
    require(!per_channel || !per_token, kName, "compute: integer has one scale a row or one a column: got input per ",
            x, " and weights per ", g, ". Make one of them per tensor.");
    if (per_channel) y.granularity = Granularity::channel(1);
  }

  // The product of this shape, with numbers that nobody reads: which row would run, and in which layout would it read
  // the weight?
  void plan_layout(const TensorMeta& in) {
    static const float kNumber = 1.0f;
    const Tensor x = stand_in(in);
    GemmArgs args;
    args.m = in.rows;
    args.n = weight_.shape().rows();
    args.k = in.features;
    args.ldc = args.n;
    args.a.dtype = in.dtype;
    args.b.dtype = weight_.value().dtype();
    if (compute_ == Compute::kInteger) {
      args.c_dtype = dtypes::int32;
    } else {
      args.bias = bias_ ? &kNumber : nullptr;
      args.a.scale = x.scale_map();
      args.b.scale = weight_.value().scale_map();
    }
    weight_.add_layout(plan_gemm(args).b_layout);
  }

  Compute compute_;
  Parameter& weight_;
  Parameter* bias_ = nullptr;
  LinearModes modes_;
  bool stochastic_ = true;
  RandomStream draws_;
};

}  // namespace

std::shared_ptr<Module> make_linear_layer(const LayerSpec& spec, int64_t in_features) {
  require(spec.out > 0 && in_features > 0, kName, "in and out must be at least 1: got in ", in_features, ", out ",
          spec.out);
  return std::make_shared<Linear>(spec, in_features);
}
std::shared_ptr<Module> make_linear(int64_t in, int64_t out, const ParameterSpec& weight, bool bias) {
  LayerSpec spec;
  spec.kind = "linear";
  spec.out = out;
  spec.weight = weight;
  spec.bias = bias;
  return make_linear_layer(spec, in);
}

}  // namespace bitgrad
