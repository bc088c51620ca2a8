// Flattens samples of any rank to vectors: values, or codes with a scale per tensor.
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/spatial.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

constexpr std::string_view kFlattenLayer = "flatten";

class FlattenLayer final : public detail::ValuesLayer {
 public:
  Var forward(const Var& x) override { return flatten(detail::pass_through(x, y_)); }

  Form plan(const Form& in, PlanRequests&) override {
    require(in.sample.rank() >= 1, kFlattenLayer, "needs samples of elements: got ", in);
    const bool shared = !in.scales || in.scales->granularity.kind == Granularity::kTensor;
    require(shared || in.sample_rows() == 1, kFlattenLayer, "needs one scale per tensor, got scales per ",
            in.scales ? in.scales->granularity : Granularity{}, " of ", in, ". Quantize after it");
    Form out = in;
    out.sample = {in.sample.numel()};
    out.dtype = y_ = detail::passed_dtype(in);
    return out;
  }
  inference::Value lower(inference::Graph& graph, inference::Value x) override {
    return detail::add_passing(graph, path(), inference::Reshape{}, x, {graph[x].form.sample.numel()});
  }
  std::string_view kind() const override { return kFlattenLayer; }
};

}  // namespace

LayerKind flatten_kind() {
  return {.name = std::string(kFlattenLayer),
          .doc = "all elements of a sample as a vector; images in the order [h, w, c]",
          .axes = true,
          .bf16 = true,
          .output = LayerKind::Output::kKeeps,
          .make = [](const LayerSpec&) { return std::make_shared<FlattenLayer>(); }};
}

}  // namespace bitgrad
