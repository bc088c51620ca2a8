// Pointwise layers, one for each line of kernels/unary.inc. relu also accepts int32 sums with a scale.
#include "bitgrad/ops/unary.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

constexpr const char* kInput = "input";

class UnaryLayer final : public detail::ValuesLayer {
 public:
  explicit UnaryLayer(UnaryOp op) : op_(op) {}
  Var forward(const Var& x) override {
    if (op_ == UnaryOp::relu && x.dtype() == dtypes::int32) return integer_relu(x);
    return detail::in_values(operand(kInput, x), y_, [this](const Var& in) { return unary(op_, in); });
  }
  // Functions that are no bounds of codes become tables of codes.
  std::vector<std::string> operand_names() const override {
    return op_ == UnaryOp::relu || op_ == UnaryOp::hardtanh ? std::vector<std::string>()
                                                            : std::vector<std::string>{kInput};
  }
  Form plan(const Form& in, PlanRequests&) override {
    const bool integers = in.dtype == dtypes::int32;
    if (integers && op_ == UnaryOp::relu) return in;
    require(detail::is_values(in.dtype), unary_name(op_), "needs fp32 input, got ", in.dtype,
            integers ? ". Put dequantize before it" : ". Put it before the quantizer, or dequantize before it");
    plan_operand(kInput, in);
    return planned_as(in, in.float_output());
  }
  inference::Value lower(inference::Graph& graph, inference::Value x) override {
    if (graph[x].form.dtype == dtypes::int32)
      return detail::add_passing(graph, path(), inference::Pointwise{op_}, x, graph[x].form.sample);
    x = lower_operand(kInput, graph, x);
    return detail::add_node(graph, path(), inference::Pointwise{op_}, x, detail::values_like(graph[x].form, y_));
  }
  std::string_view kind() const override { return unary_name(op_); }

 private:
  UnaryOp op_;
};

}  // namespace

namespace {

std::string unary_doc(std::string_view name) {
  constexpr std::pair<std::string_view, const char*> kFormulas[] = {
      {"relu", "max(x, 0)"},
      {"hardtanh", "min(max(x, -1), 1)"},
      {"tanh", "tanh(x)"},
      {"sigmoid", "1 / (1 + exp(-x))"},
      {"relu2", "max(x, 0)^2 (So et al. 2021, arXiv 2109.08668)"}};
  for (const auto& [known, formula] : kFormulas)
    if (known == name) return formula;
  return std::string(name) + "(x), element by element";
}

}  // namespace

std::vector<LayerKind> unary_kinds() {
  std::vector<LayerKind> kinds;
  for (int i = 0; i < static_cast<int>(UnaryOp::kCount); ++i) {
    const UnaryOp op = static_cast<UnaryOp>(i);
    LayerKind& kind = kinds.emplace_back();
    kind.name = unary_name(op);
    kind.doc = unary_doc(kind.name);
    kind.output = LayerKind::Output::kNone;
    kind.bf16 = true;
    kind.make = [op](const LayerSpec&) { return std::make_shared<UnaryLayer>(op); };
  }
  return kinds;
}

}  // namespace bitgrad
