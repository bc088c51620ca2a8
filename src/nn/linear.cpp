// y[n,o] = sum_i x[n,i] w[o,i] (+ bias[o])
#include "bitgrad/kernels/gemm.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"

namespace bitgrad {
namespace {

class Linear final : public Module {
 public:
  Linear(int64_t in, int64_t out, const ParameterSpec& weight, bool bias)
      : weight_(add_parameter("weight", {out, in}, weight)) {
    if (bias) bias_ = &add_parameter("bias", {out}, ParameterSpec{});
  }

  Var forward(const Var& x) override { return linear(x, weight_.read(), bias_ ? bias_->read() : Var()); }

  TensorMeta plan(const TensorMeta& in) override {
    const int64_t out = weight_.shape().rows(), features = weight_.shape().cols();
    require(in.features == features, "linear", "x has ", in.features, " features, w expects ", features);
    // The product of this shape, with pointers that nobody reads: which row would run, and in which layout would it
    // read the weight?
    static const float kScale = 1.0f;
    static const int32_t kZero = 0;
    GemmArgs args;
    args.bias = bias_ ? &kScale : nullptr;
    args.m = in.rows;
    args.n = out;
    args.k = features;
    args.ldc = out;
    args.a.dtype = in.dtype;
    args.b.dtype = weight_.value().dtype();
    args.b.scale = weight_.value().scale_map();
    if (in.granularity) {
      args.a.scale.scale = &kScale;
      args.a.scale.row_step = in.granularity->kind == Granularity::kToken ? 1 : 0;
      if (in.granularity->kind == Granularity::kChannel)
        (in.granularity->axis == 0 ? args.a.scale.row_step : args.a.scale.col_step) = 1;
      if (in.granularity->kind == Granularity::kGroup) {
        args.a.scale.row_step = args.a.scale.col_step = 1;
        args.a.scale.col_group = in.granularity->group;
      }
    }
    if (in.zero_point) args.a.scale.zero = &kZero;
    if (in.rows > 0) weight_.add_layout(plan_gemm(args).b_layout);
    TensorMeta y;
    y.rows = in.rows;
    y.features = out;
    y.training = in.training;
    return y;
  }

 private:
  Parameter& weight_;
  Parameter* bias_ = nullptr;
};

}  // namespace

std::shared_ptr<Module> make_linear(int64_t in, int64_t out, const ParameterSpec& weight, bool bias) {
  require(out > 0 && in > 0, "linear", "in and out must be at least 1: got in ", in, ", out ", out);
  return std::make_shared<Linear>(in, out, weight, bias);
}
std::shared_ptr<Module> make_linear_layer(const LayerSpec& spec, int64_t in_features) {
  return make_linear(in_features, spec.out, spec.weight, spec.bias);
}

}  // namespace bitgrad
