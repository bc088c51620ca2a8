// Layers that quantize activations and gradients, and back.
#include "bitgrad/base/step_scalars.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "nn/activation_quantizer.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

// Converts codes, or int32 sums with a scale, to float values. Float values pass through, so that an integer network
// and its float twin have the same list of layers.
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

// Identity in forward. In backward the gradient is quantized and dequantized (DoReFa-Net), drawn by path and
// microbatch.
class QuantizeGradientLayer final : public detail::ValuesLayer {
 public:
  explicit QuantizeGradientLayer(const QuantSpec& spec) : spec_(spec) {
    const Quantizer& quantizer = find_quantizer(spec_.scheme);
    quantizer.check(spec_, /*weight=*/false);
    require(quantizer.learned(spec_).empty(), "quantize_gradient", "scheme ", spec_.scheme,
            " has a learned scale, which gradients do not support. Use dorefa_gradient, symmetric or absmax.");
  }

  Var forward(const Var& in) override {
    Var x = detail::pass_through(in, y_);
    if (!x.tracked()) return x;
    return quantize_gradient(x, spec_,
                             live_by_microbatch({state().seed, Purpose::kGradient, site_id(path()),
                                                 static_cast<uint32_t>(state().microbatch)}));
  }

  Form plan(const Form& in, PlanRequests&) override { return planned_as(in, detail::passed_dtype(in)); }
  PlanRequests serve(const PlanRequests& requests) override { return requests; }
  inference::Value lower(inference::Graph&, inference::Value x) override { return x; }
  std::string_view kind() const override { return "quantize_gradient"; }

 private:
  QuantSpec spec_;
};

}  // namespace

// An activation quantizer (nn/activation_quantizer.h) as a layer of its own.
LayerKind quantize_kind() {
  return {.name = "quantize",
          .doc = "quantizes activations by quant.activations; the layer's keys override it",
          .quantizer = LayerKind::Quantizer::kActivations,
          .bf16 = true,
          .output = LayerKind::Output::kNone,
          .make = [](const LayerSpec& spec) {
            require(spec.activation.has_value(), "quantize", "needs quantized activations (dtype, scheme)");
            return std::make_shared<ActivationQuantizer>(*spec.activation);
          }};
}

LayerKind dequantize_kind() {
  return {.name = "dequantize",
          .doc = "converts codes or integers to their fp32 values",
          .bf16 = true,
          .output = LayerKind::Output::kKeeps,
          .make = [](const LayerSpec&) { return std::make_shared<DequantizeLayer>(); }};
}

LayerKind quantize_gradient_kind() {
  return {.name = "quantize_gradient",
          .doc = "identity in forward; quantizes the gradient in backward",
          .quantizer = LayerKind::Quantizer::kGradients,
          .bf16 = true,
          .output = LayerKind::Output::kNone,
          .make = [](const LayerSpec& spec) {
            require(spec.activation.has_value(), "quantize_gradient", "needs a quantized gradient (dtype, scheme)");
            return std::make_shared<QuantizeGradientLayer>(spec.activation->spec);
          }};
}

}  // namespace bitgrad
