// Turns planes [h,w] into images of one channel.
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

constexpr std::string_view kUnsqueezeLayer = "unsqueeze";

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

LayerKind unsqueeze_kind() {
  return {.name = std::string(kUnsqueezeLayer),
          .doc = "gray images [h, w] as [h, w, 1], where a quantize layer comes before the first convolution",
          .axes = true,
          .bf16 = true,
          .output = LayerKind::Output::kKeeps,
          .make = [](const LayerSpec&) { return std::make_shared<UnsqueezeLayer>(); }};
}

}  // namespace bitgrad
