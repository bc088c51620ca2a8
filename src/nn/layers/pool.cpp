// Pooling of images: means, over windows or whole images, and maxima.
#include "bitgrad/nn/layers.h"
#include "nn/layers/windows_keys.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

constexpr std::string_view kAvgPoolLayer = "avg_pool", kGlobalAvgPool = "global_avg_pool";
constexpr const char* kOperand = "input";  // means of codes keep their scale, so they have one of their own

// The form that average pools read. Throws Error for codes.
Form mean_input(std::string_view where, const Form& in) {
  require(detail::is_values(in.dtype), where, "needs fp32 input, got ", in.dtype,
          ". Put it before the quantizer, or dequantize before it");
  return detail::image_form(where, in);
}

class AvgPoolLayer final : public detail::ValuesLayer {
 public:
  explicit AvgPoolLayer(const LayerSpec& spec) : options_(detail::pool_options(spec.attributes)) {}
  Var forward(const Var& x) override {
    return detail::in_values(detail::as_image(operand(kOperand, x)), y_,
                             [this](const Var& in) { return avg_pool(in, options_); });
  }
  std::vector<std::string> operand_names() const override { return {kOperand}; }
  Form plan(const Form& in, PlanRequests&) override {
    plan_operand(kOperand, in);
    return planned_as(detail::pooled(kAvgPoolLayer, mean_input(kAvgPoolLayer, in), options_), in.float_output());
  }
  inference::Value lower(inference::Graph& graph, inference::Value x) override {
    x = detail::as_image_node(graph, path(), lower_operand(kOperand, graph, x));
    return detail::add_node(graph, path(), inference::AvgPool{options_}, x, detail::values_like(*output_form(), y_));
  }
  std::string_view kind() const override { return kAvgPoolLayer; }

 private:
  PoolOptions options_;
};

class GlobalAvgPool final : public detail::ValuesLayer {
 public:
  Var forward(const Var& x) override {
    return detail::in_values(detail::as_image(operand(kOperand, x)), y_, global_avg_pool);
  }
  std::vector<std::string> operand_names() const override { return {kOperand}; }
  Form plan(const Form& in, PlanRequests&) override {
    plan_operand(kOperand, in);
    Form out = mean_input(kGlobalAvgPool, in);
    out.sample = {out.features()};
    out.dtype = y_ = in.float_output();
    return out;
  }
  inference::Value lower(inference::Graph& graph, inference::Value x) override {
    x = detail::as_image_node(graph, path(), lower_operand(kOperand, graph, x));
    return detail::add_node(graph, path(), inference::AvgPool{{}, /*whole_image=*/true}, x,
                            detail::values_like(*output_form(), y_));
  }
  std::string_view kind() const override { return kGlobalAvgPool; }
};

constexpr std::string_view kMaxPoolLayer = "max_pool";

// Max pooling over windows of images: values, or codes, which stay codes.
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

LayerKind avg_pool_kind() {
  return {.name = std::string(kAvgPoolLayer),
          .doc = "mean of each window of images [h, w, c]",
          .keys = detail::pool_keys(),
          .axes = true,
          .bf16 = true,
          .output = LayerKind::Output::kNone,
          .make = [](const LayerSpec& spec) { return std::make_shared<AvgPoolLayer>(spec); }};
}

LayerKind global_avg_pool_kind() {
  return {.name = std::string(kGlobalAvgPool),
          .doc = "mean of each channel over the pixels of an image: [h, w, c] becomes [c]",
          .axes = true,
          .bf16 = true,
          .output = LayerKind::Output::kKeeps,
          .make = [](const LayerSpec&) { return std::make_shared<GlobalAvgPool>(); }};
}

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
