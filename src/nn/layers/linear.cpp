// y[n,o] = sum_i x[n,i] w[o,i] (+ bias[o]), on packed operands, as a float simulation, or int32 with a scale.
#include "bitgrad/base/live_step.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "nn/linear_plan.h"

namespace bitgrad {
namespace {

class Linear final : public Module {
 public:
  Linear(const LayerSpec& spec, int64_t in)
      : slot_(add_quantizable("weight", {spec.out, in}, spec.weight, Quantizable::Kind::kLinear, spec.compute)) {
    if (spec.bias) bias_ = &add_parameter("bias", {spec.out}, {.init = {"zeros"}});
    modes_.gx = spec.gx;
    modes_.gw = spec.gw;
    modes_.gx_per_group = spec.gx_per_group;
    stochastic_ = spec.gradient_rounding == Rounding::kStochastic;
    detail::check_compute({slot_.weight(), spec.compute, modes_, spec.bias});
  }

  Var forward(const Var& x) override {
    const RandomStream draws = live_by_microbatch(
        {state().seed, Purpose::kGradient, site_id(path()), static_cast<uint32_t>(state().microbatch)});
    LinearModes modes = modes_;
    if (stochastic_) modes.sr = &draws;
    return slot_.linear(x, bias_ ? bias_->read() : Var(), modes);
  }
  // In evaluation: no gradient, so no draws.
  Var forward_behind(Module& before, const Var& x) override {
    if (slot_.input_quantizer() == nullptr) return {};
    return slot_.linear_behind(before, x, bias_ ? bias_->read() : Var(), modes_);
  }

  TensorMeta plan(const TensorMeta& in) override { return slot_.plan_linear(in, bias_ != nullptr, modes_); }
  std::string_view kind() const override { return "linear"; }

 private:
  Quantizable& slot_;
  Parameter* bias_ = nullptr;
  LinearModes modes_;
  bool stochastic_ = true;
};

}  // namespace

std::shared_ptr<Module> make_linear_layer(const LayerSpec& spec, int64_t in_features) {
  require(spec.out > 0 && in_features > 0, "linear", "in and out must be at least 1: got in ", in_features, ", out ",
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
