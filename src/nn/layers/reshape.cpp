// Layers that change the shape of samples only.
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/spatial.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

constexpr std::string_view kFlattenLayer = "flatten";

// Flattens samples of any rank to vectors: values, or codes with a scale per tensor.
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

constexpr std::string_view kUnsqueezeLayer = "unsqueeze";

// Turns planes [h,w] into images of one channel.
class UnsqueezeLayer final : public detail::ValuesLayer {
 public:
  Var forward(const Var& x) override {
    const Shape& s = x.shape();
    return reshape(detail::pass_through(x, y_), {s[0], s[1], s[2], 1});
  }

  Form plan(const Form& in, PlanRequests&) override {
    require(in.sample.rank() == 2, kUnsqueezeLayer, "needs samples [h,w]: got ", in);
    require(in.dtype.is_float(), kUnsqueezeLayer, "needs values, got ", in, ". Put it before the quantize layer");
    Form out = in;
    out.sample = {in.sample[0], in.sample[1], 1};
    out.dtype = y_ = detail::passed_dtype(in);
    return out;
  }
  inference::Value lower(inference::Graph& graph, inference::Value x) override {
    return detail::as_image_node(graph, path(), x);
  }
  std::string_view kind() const override { return kUnsqueezeLayer; }
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

LayerKind unsqueeze_kind() {
  return {.name = std::string(kUnsqueezeLayer),
          .doc = "gray images [h, w] as [h, w, 1], where a quantize layer comes before the first convolution",
          .axes = true,
          .bf16 = true,
          .output = LayerKind::Output::kKeeps,
          .make = [](const LayerSpec&) { return std::make_shared<UnsqueezeLayer>(); }};
}

}  // namespace bitgrad
