// y = cap * tanh(x / cap): scores that stay within +-cap (Gemma 2, arXiv 2408.00118, section 2).
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/unary.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

constexpr std::string_view kSoftcap = "softcap";

class Softcap final : public detail::ValuesLayer {
 public:
  explicit Softcap(float cap) : cap_(cap) {}

  Var forward(const Var& x) override {
    return detail::in_values({x}, y_, false, [this](const std::vector<Var>& in) {
      return times(unary(UnaryOp::tanh, times(in[0], 1 / cap_)), cap_);
    });
  }
  Form plan(const Form& in, PlanRequests&) override {
    require(detail::is_values(in.dtype), kSoftcap, "needs fp32 input, got ", in.dtype,
            ". Put it before the quantizer, or dequantize before it");
    return planned_as(in, in.float_output());
  }
  inference::Value lower(inference::Graph& graph, inference::Value x) override {
    const Form form = detail::values_like(graph[x].form, y_);
    x = detail::add_node(graph, path(), inference::Times{1 / cap_}, x, form);
    x = detail::add_node(graph, path(), inference::Pointwise{UnaryOp::tanh}, x, form);
    return detail::add_node(graph, path(), inference::Times{cap_}, x, form);
  }
  std::string_view kind() const override { return kSoftcap; }

 private:
  float cap_;
};

}  // namespace

LayerKind softcap_kind() {
  return {.name = std::string(kSoftcap),
          .doc = "cap * tanh(x / cap), element by element",
          .keys = {{"cap", Key::Type::kNumber, "[1e-6, 1e6]", "!", "the largest magnitude"}},
          .bf16 = true,
          .output = LayerKind::Output::kKeeps,
          .make = [](const LayerSpec& spec) {
            return std::make_shared<Softcap>(static_cast<float>(spec.attributes.number("cap")));
          }};
}

}  // namespace bitgrad
