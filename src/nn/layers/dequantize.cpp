// Converts codes, or int32 sums with a scale, to float values. Float values pass through, so that an integer network
// and its float twin have the same list of layers.
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

class DequantizeLayer final : public detail::ValuesLayer {
 public:
  Var forward(const Var& x) override {
    return detail::is_values(x.dtype()) ? detail::pass_through(x, y_) : dequantize(x, y_);
  }

  Form plan(const Form& in, PlanRequests&) override {
    require(detail::is_values(in.dtype) || in.dtype == dtypes::int32 || in.dtype.is_code(), "dequantize",
            "needs codes, int32 or fp32, got ", in.dtype);
    Form out = in;
    out.dtype = y_ = detail::is_values(in.dtype) ? detail::passed_dtype(in) : in.float_output();
    out.scales.reset();
    return out;
  }
  PlanRequests serve(const PlanRequests& requests) override { return requests.parts(); }
  inference::Value lower(inference::Graph& graph, inference::Value x) override {
    if (detail::is_values(graph[x].form.dtype)) return x;
    return detail::add_node(graph, path(), inference::Dequantize{}, x, detail::values_like(graph[x].form, y_));
  }
  std::string_view kind() const override { return "dequantize"; }
};

}  // namespace

LayerKind dequantize_kind() {
  return {.name = "dequantize",
          .doc = "converts codes or integers to their fp32 values",
          .bf16 = true,
          .output = LayerKind::Output::kKeeps,
          .make = [](const LayerSpec&) { return std::make_shared<DequantizeLayer>(); }};
}

}  // namespace bitgrad
