// swiglu, geglu, geglu_tanh, reglu and relu2_glu: f(gate) * up of the two halves of the last axis (Shazeer 2020, arXiv
// 2002.05202). Meant for the output of a single weight [2 D, K] whose first D outputs are the gate.
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/unary.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

class GatedLayer final : public detail::ValuesLayer {
 public:
  GatedLayer(std::string_view name, UnaryOp f) : name_(name), f_(f) {}

  Var forward(const Var& x) override {
    return detail::in_values(x, y_, [this](const Var& in) { return gated(f_, in); });
  }
  Form plan(const Form& in, PlanRequests& requests) override {
    require(detail::is_values(in.dtype), name_, "needs fp32 input, got ", in.dtype,
            ". Put it before the quantizer, or dequantize before it");
    require(in.features() % 2 == 0, name_, "expects gate and up concatenated: got ", in.features(),
            " features, expected an even number");
    requests.stack({in.features() / 2, in.features() / 2});
    return planned_as(in.with_features(in.features() / 2), in.float_output());
  }
  inference::Value lower(inference::Graph& graph, inference::Value x) override {
    const Form out = graph[x].form.with_features(graph[x].form.features() / 2);
    return detail::add_node(graph, path(), inference::Gate{f_}, x, detail::values_like(out, y_));
  }
  std::string_view kind() const override { return name_; }

 private:
  std::string_view name_;
  UnaryOp f_;
};

LayerKind gated_kind(const char* name, const char* doc, UnaryOp f) {
  return {.name = std::string(name),
          .doc = doc,
          .bf16 = true,
          .output = LayerKind::Output::kNone,
          .make = [name, f](const LayerSpec&) { return std::make_shared<GatedLayer>(name, f); }};
}

}  // namespace

LayerKind swiglu_kind() {
  return gated_kind("swiglu", "silu(a) * b, a and b being the two halves of the last axis", UnaryOp::silu);
}
LayerKind geglu_kind() {
  return gated_kind("geglu", "gelu(a) * b, a and b being the two halves of the last axis", UnaryOp::gelu);
}
LayerKind geglu_tanh_kind() {
  return gated_kind("geglu_tanh", "gelu_tanh(a) * b, a and b being the two halves of the last axis",
                    UnaryOp::gelu_tanh);
}
LayerKind reglu_kind() {
  return gated_kind("reglu", "relu(a) * b, a and b being the two halves of the last axis", UnaryOp::relu);
}
LayerKind relu2_glu_kind() {
  return gated_kind("relu2_glu", "relu(a)^2 * b, a and b being the two halves of the last axis", UnaryOp::relu2);
}

}  // namespace bitgrad
