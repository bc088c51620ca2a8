// Batch norm (a statistic per feature) and tensor norm (one in all): parameters gamma (1) and beta (0), buffers
// running_mean and running_var.
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"

namespace bitgrad {
namespace {

using NormOp = Var (*)(const Var&, const Var&, const Var&, const NormOptions&);

class Norm final : public Module {
 public:
  Norm(std::string_view name, NormOp op, int64_t statistics, float eps, float momentum)
      : name_(name),
        op_(op),
        gamma_(add_parameter("gamma", {statistics}, constant(1))),
        beta_(add_parameter("beta", {statistics}, constant(0))) {
    require(eps > 0, name, "eps must be above 0: got ", eps);
    require(momentum >= 0 && momentum <= 1, name, "momentum must be in [0, 1]: got ", momentum);
    options_.eps = eps;
    options_.momentum = momentum;
    options_.running_mean = add_buffer("running_mean", {statistics}, 0);
    options_.running_var = add_buffer("running_var", {statistics}, 1);
  }

  Var forward(const Var& x) override {
    options_.training = state().training;
    return op_(x, gamma_.read(), beta_.read(), options_);
  }

  TensorMeta plan(const TensorMeta& in) override {
    require(in.dtype == dtypes::fp32, name_, "needs fp32 input, got ", in.dtype,
            in.dtype == dtypes::int32 ? ". Put dequantize before it" : ". Put it before the quantizer");
    TensorMeta out = in;
    out.grad = true;
    return out;
  }
  std::string_view kind() const override { return name_; }

 private:
  static ParameterSpec constant(double number) {
    ParameterSpec spec;
    spec.init = {"constant", number, 0};
    return spec;
  }
  std::string_view name_;
  NormOp op_;
  Parameter &gamma_, &beta_;
  NormOptions options_;
};

}  // namespace

std::shared_ptr<Module> make_batch_norm_layer(const LayerSpec& spec, int64_t in_features) {
  return std::make_shared<Norm>("batch_norm", batch_norm, in_features, spec.eps, spec.momentum);
}
std::shared_ptr<Module> make_tensor_norm_layer(const LayerSpec& spec, int64_t) {
  return std::make_shared<Norm>("tensor_norm", tensor_norm, 1, spec.eps, spec.momentum);
}

}  // namespace bitgrad
