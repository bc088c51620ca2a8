// Average pooling over windows, and over whole images.
#include "bitgrad/nn/layers.h"
#include "nn/layers/windows_keys.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

constexpr std::string_view kAvgPoolLayer = "avg_pool", kGlobalAvgPool = "global_avg_pool";

// The form that average pools read. Throws Error for codes.
Form mean_input(std::string_view where, const Form& in) {
  require(detail::is_values(in.dtype), where, "needs fp32 input, got ", in.dtype,
          ". Put it before the quantizer, or dequantize before it");
  return detail::image_form(where, in);
}

class AvgPoolLayer final : public Module {
 public:
  explicit AvgPoolLayer(const LayerSpec& spec) : options_(detail::pool_options(spec.attributes)) {}
  Var forward(const Var& x) override {
    return detail::in_values(detail::as_image(x), y_, [this](const Var& in) { return avg_pool(in, options_); });
  }
  Form plan(const Form& in, PlanRequests&) override {
    Form out = detail::pooled(kAvgPoolLayer, mean_input(kAvgPoolLayer, in), options_);
    out.dtype = y_ = in.float_output();
    return out;
  }
  inference::Value lower(inference::Graph& graph, inference::Value x) override {
    x = detail::as_image_node(graph, path(), x);
    return detail::add_node(graph, path(), inference::AvgPool{options_}, x, detail::values_like(*output_form(), y_));
  }
  std::string_view kind() const override { return kAvgPoolLayer; }

 private:
  PoolOptions options_;
  DType y_ = dtypes::fp32;  // output dtype, set by plan
};

class GlobalAvgPool final : public Module {
 public:
  Var forward(const Var& x) override { return detail::in_values(detail::as_image(x), y_, global_avg_pool); }
  Form plan(const Form& in, PlanRequests&) override {
    Form out = mean_input(kGlobalAvgPool, in);
    out.sample = {out.features()};
    out.dtype = y_ = in.float_output();
    return out;
  }
  inference::Value lower(inference::Graph& graph, inference::Value x) override {
    x = detail::as_image_node(graph, path(), x);
    return detail::add_node(graph, path(), inference::AvgPool{{}, /*whole_image=*/true}, x,
                            detail::values_like(*output_form(), y_));
  }
  std::string_view kind() const override { return kGlobalAvgPool; }

 private:
  DType y_ = dtypes::fp32;  // output dtype, set by plan
};

}  // namespace

LayerKind avg_pool_kind() {
  LayerKind kind;
  kind.name = kAvgPoolLayer;
  kind.doc = "mean of each window of images [h, w, c]";
  kind.keys = detail::pool_keys();
  kind.output = LayerKind::Output::kNone;
  kind.bf16 = kind.axes = true;
  kind.make = [](const LayerSpec& spec) { return std::make_shared<AvgPoolLayer>(spec); };
  return kind;
}

LayerKind global_avg_pool_kind() {
  LayerKind kind;
  kind.name = kGlobalAvgPool;
  kind.doc = "mean of each channel over the pixels of an image: [h, w, c] becomes [c]";
  kind.output = LayerKind::Output::kKeeps;
  kind.bf16 = kind.axes = true;
  kind.make = [](const LayerSpec&) { return std::make_shared<GlobalAvgPool>(); };
  return kind;
}

}  // namespace bitgrad
