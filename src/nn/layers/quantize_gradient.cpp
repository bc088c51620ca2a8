// Identity; the gradient that passes becomes the value of codes (DoReFa-Net), drawn by path and microbatch.
#include "bitgrad/base/live_step.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"

namespace bitgrad {
namespace {

class QuantizeGradientLayer final : public Module {
 public:
  explicit QuantizeGradientLayer(const QuantSpec& spec) : spec_(spec) {
    const Quantizer& quantizer = find_quantizer(spec_.scheme);
    quantizer.check(spec_, /*weight=*/false);
    require(quantizer.learned(spec_).empty(), "quantize_gradient", "scheme ", spec_.scheme,
            " learns its scale, which no gradient can. Use dorefa_gradient, symmetric or absmax.");
  }

  Var forward(const Var& x) override {
    if (!x.tracked()) return x;
    return quantize_gradient(x, spec_,
                             live_by_microbatch({state().seed, Purpose::kGradient, site_id(path()),
                                                 static_cast<uint32_t>(state().microbatch)}));
  }

  TensorMeta plan(const TensorMeta& in) override { return in; }
  std::string_view kind() const override { return "quantize_gradient"; }

 private:
  QuantSpec spec_;
};

}  // namespace

std::shared_ptr<Module> make_quantize_gradient_layer(const LayerSpec& spec, int64_t) {
  require(spec.activation.has_value(), "quantize_gradient", "needs a quantization of the gradient (dtype, scheme)");
  return std::make_shared<QuantizeGradientLayer>(*spec.activation);
}

}  // namespace bitgrad
