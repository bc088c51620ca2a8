// Identity in forward. In backward the gradient is quantized and dequantized (DoReFa-Net), drawn by path and
// microbatch.
#include "bitgrad/base/step_scalars.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

class QuantizeGradientLayer final : public Module {
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

  Form plan(const Form& in, PlanRequests&) override {
    Form out = in;
    out.dtype = y_ = detail::passed_dtype(in);
    return out;
  }
  PlanRequests serve(const PlanRequests& requests) override { return requests; }
  inference::Value lower(inference::Graph&, inference::Value x) override { return x; }
  std::string_view kind() const override { return "quantize_gradient"; }

 private:
  QuantSpec spec_;
  DType y_ = dtypes::fp32;  // output dtype of float values, set by plan
};

}  // namespace

LayerKind quantize_gradient_kind() {
  LayerKind kind;
  kind.name = "quantize_gradient";
  kind.doc = "identity in forward; quantizes the gradient in backward";
  kind.quantizer = LayerKind::Quantizer::kGradients;
  kind.output = LayerKind::Output::kNone;
  kind.bf16 = true;
  kind.make = [](const LayerSpec& spec) {
    require(spec.activation.has_value(), "quantize_gradient", "needs a quantized gradient (dtype, scheme)");
    return std::make_shared<QuantizeGradientLayer>(spec.activation->spec);
  };
  return kind;
}

}  // namespace bitgrad
