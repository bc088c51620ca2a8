// Identity in forward. In backward the gradient is quantized and dequantized (DoReFa-Net), drawn by path and
// microbatch.
#include "bitgrad/base/step_scalars.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

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
