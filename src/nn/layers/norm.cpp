// Batch norm (a statistic per feature) and tensor norm (one in all): parameters gamma (1) and beta (0), buffers
// running_mean and running_var.
#include "nn/norm.h"

#include "bitgrad/nn/layers.h"
#include "ops/norm.h"

namespace bitgrad {
namespace {

ParameterSpec constant(double number) {
  ParameterSpec spec;
  spec.init = {"constant", number, 0};
  return spec;
}

}  // namespace

Norm::Norm(std::string_view name, Op op, bool per_column, int64_t statistics, float eps, float momentum)
    : name_(name),
      op_(op),
      per_column_(per_column),
      gamma_(add_parameter("gamma", {statistics}, constant(1))),
      beta_(add_parameter("beta", {statistics}, constant(0))) {
  require(eps > 0, name, "eps must be above 0: got ", eps);
  require(momentum >= 0 && momentum <= 1, name, "momentum must be in [0, 1]: got ", momentum);
  options_.eps = eps;
  options_.momentum = momentum;
  options_.running_mean = add_buffer("running_mean", {statistics}, 0);
  options_.running_var = add_buffer("running_var", {statistics}, 1);
}

Var Norm::forward(const Var& x) {
  options_.training = state().training;
  return op_(x, gamma_.read(), beta_.read(), options_);
}

bool Norm::gives_signs(const Tensor& x) const {
  const Tensor& gamma = gamma_.value();
  return x.dtype() == dtypes::fp32 && !x.quant() && x.shape().rank() == 2 && x.contiguous() &&
         x.device() == current_device() && gamma.device() == current_device() &&
         (!per_column_ || x.cols() == gamma.numel());
}

Tensor Norm::signs(const Tensor& x, std::shared_ptr<const QuantParams> params, uint32_t* flags) {
  options_.training = false;
  const Tensor in[] = {x, gamma_.value(), beta_.value()};
  return norm_signs(name_, per_column_, in, options_, std::move(params), flags);
}

TensorMeta Norm::plan(const TensorMeta& in) {
  require(in.dtype == dtypes::fp32, name_, "needs fp32 input, got ", in.dtype,
          in.dtype == dtypes::int32 ? ". Put dequantize before it" : ". Put it before the quantizer");
  TensorMeta out = in;
  out.grad = true;
  return out;
}

std::shared_ptr<Module> make_batch_norm_layer(const LayerSpec& spec, int64_t in_features) {
  return std::make_shared<Norm>("batch_norm", batch_norm, /*per_column=*/true, in_features, spec.eps, spec.momentum);
}
std::shared_ptr<Module> make_tensor_norm_layer(const LayerSpec& spec, int64_t) {
  return std::make_shared<Norm>("tensor_norm", tensor_norm, /*per_column=*/false, 1, spec.eps, spec.momentum);
}

}  // namespace bitgrad
