// layer_norm and rms_norm: normalize each row along the last axis by its own statistics, in training and evaluation
// alike. Parameters gamma (1) and, for layer_norm, beta (0).
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

constexpr std::string_view kLayerNorm = "layer_norm", kRmsNorm = "rms_norm";

class RowNorm final : public detail::ValuesLayer {
 public:
  RowNorm(std::string_view name, float eps, bool bias)
      : name_(name), eps_(eps), gamma_(add_parameter("gamma", ParameterSpec{.init = {"constant", 1, 0}})) {
    if (bias) beta_ = &add_parameter("beta", ParameterSpec{.init = {"zeros"}});
  }

  Var forward(const Var& x) override {
    return detail::in_values(x, y_, [this](const Var& in) {
      if (name_ == kRmsNorm) return rms_norm(in, gamma_.read(), eps_);
      return layer_norm(in, gamma_.read(), beta_ != nullptr ? beta_->read() : Var(), eps_);
    });
  }
  Form plan(const Form& in, PlanRequests&) override {
    require(detail::is_values(in.dtype), name_, "needs fp32 input, got ", in.dtype,
            in.dtype == dtypes::int32 ? ". Put dequantize before it" : ". Put it before the quantizer");
    gamma_.describe({in.features()});
    if (beta_ != nullptr) beta_->describe({in.features()});
    Form out = in;
    out.dtype = y_ = in.float_output();
    out.grad = true;
    return out;
  }
  inference::Value lower(inference::Graph& graph, inference::Value x) override {
    inference::RowNorm norm{name_ == kLayerNorm, eps_, detail::floats_of(gamma_.value()), {}};
    if (beta_ != nullptr) norm.beta = detail::floats_of(beta_->value());
    return detail::add_node(graph, path(), std::move(norm), x, detail::values_like(graph[x].form, y_));
  }
  std::string_view kind() const override { return name_; }

 private:
  std::string_view name_;
  float eps_;
  Parameter& gamma_;
  Parameter* beta_ = nullptr;
};

LayerKind row_norm_kind(std::string_view name, const char* doc) {
  using Type = Key::Type;
  LayerKind kind;
  kind.name = name;
  kind.doc = doc;
  kind.keys = {{"eps", Type::kNumber, "[1e-12, 1]", "1e-5", "added to the mean square"}};
  if (name == kLayerNorm) kind.keys.push_back({"bias", Type::kBool, "", "true", "adds a learned beta"});
  kind.output = LayerKind::Output::kKeeps;
  kind.bf16 = true;
  kind.make = [name](const LayerSpec& spec) {
    const bool bias = name == kLayerNorm && spec.attributes.flag("bias");
    return std::make_shared<RowNorm>(name, static_cast<float>(spec.attributes.number("eps")), bias);
  };
  return kind;
}

}  // namespace

LayerKind layer_norm_kind() {
  return row_norm_kind(kLayerNorm, "normalizes each row along the last axis: mean and variance (Ba et al. 2016)");
}
LayerKind rms_norm_kind() {
  return row_norm_kind(kRmsNorm,
                       "divides each row along the last axis by its root mean square (Zhang and Sennrich 2019)");
}

}  // namespace bitgrad
