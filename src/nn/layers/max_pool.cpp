// Max pooling over windows of images: values, or codes, which stay codes.
#include "bitgrad/nn/layers.h"
#include "nn/layers/windows_keys.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

constexpr std::string_view kMaxPoolLayer = "max_pool";

class MaxPoolLayer final : public detail::ValuesLayer {
 public:
  explicit MaxPoolLayer(const LayerSpec& spec) : options_(detail::pool_options(spec.attributes)) {}

  Var forward(const Var& x) override { return max_pool(detail::as_image(detail::pass_through(x, y_)), options_); }

  Form plan(const Form& in, PlanRequests&) override {
    const bool codes = in.dtype.is_code() && in.dtype.kind() != DTypeKind::kCodebook;
    require(codes || detail::is_values(in.dtype), kMaxPoolLayer,
            "needs fp32 input or codes of kind int, uint or sign, got ", in.dtype, ". Put dequantize before it");
    const Granularity g = in.scales ? in.scales->granularity : Granularity{};
    require(g.kind == Granularity::kTensor || (g.kind == Granularity::kChannel && g.axis == 1), kMaxPoolLayer,
            "needs scales per tensor or channel(1), got scales per ", g, " of ", in,
            ", which differ within a window. Quantize after it");
    return planned_as(detail::pooled(kMaxPoolLayer, detail::image_form(kMaxPoolLayer, in), options_),
                      detail::passed_dtype(in));
  }
  inference::Value lower(inference::Graph& graph, inference::Value x) override {
    x = detail::as_image_node(graph, path(), x);
    return detail::add_passing(graph, path(), inference::MaxPool{options_}, x, output_form()->sample);
  }
  std::string_view kind() const override { return kMaxPoolLayer; }

 private:
  PoolOptions options_;
};

}  // namespace

LayerKind max_pool_kind() {
  return {.name = std::string(kMaxPoolLayer),
          .doc = "largest element of each window of images [h, w, c], of values or of codes",
          .keys = detail::pool_keys(),
          .axes = true,
          .bf16 = true,
          .output = LayerKind::Output::kNone,
          .make = [](const LayerSpec& spec) { return std::make_shared<MaxPoolLayer>(spec); }};
}

}  // namespace bitgrad
