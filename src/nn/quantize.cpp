// Activation quantizer: numbers become codes; the straight-through rule of the scheme is its backward.
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"

namespace bitgrad {
namespace {

class QuantizeLayer final : public Module {
 public:
  QuantizeLayer(const QuantSpec& spec, DType grad) : spec_(spec), grad_(grad) {
    find_quantizer(spec.scheme).check(spec, /*weight=*/false);
  }

  Var forward(const Var& x) override {
    const RandomStream draws{state().seed, Purpose::kActivation, site_id(path()),
                             static_cast<uint32_t>(state().microbatch)};
    QuantizeOpOptions options;
    QuantSpec spec = spec_;
    if (!state().training) spec.rounding = Rounding::kNearest;  // so that accuracy depends on no draw and no batch size
    options.sr = &draws;
    options.first_element = state().first_row * x.value().cols();
    options.flag = mutable_state().flags.word(path());
    Var input = x;
    if (input.tracked() && grad_ != input.grad_dtype()) input.want_grad(grad_);
    return quantize(input, spec, options);
  }

  TensorMeta plan(const TensorMeta& in) override {
    require(in.dtype == dtypes::fp32, "quantize", "needs fp32 input, got ", in.dtype);
    TensorMeta out = in;
    out.dtype = spec_.dtype;
    // What kinds of scales the scheme makes, asked of a tiny tensor.
    const QuantParams probe = find_quantizer(spec_.scheme).fit(spec_, Tensor::full({1, 1}, dtypes::fp32, 0.5));
    if (probe.scale) out.granularity = probe.granularity;
    out.zero_point = probe.zero != nullptr;
    out.offset = probe.offset != nullptr;
    return out;
  }

 private:
  QuantSpec spec_;
  DType grad_;
};

}  // namespace

std::shared_ptr<Module> make_quantize_layer(const LayerSpec& spec, int64_t) {
  require(spec.activation.has_value(), "quantize", "needs a quantization of activations (dtype, scheme)");
  return std::make_shared<QuantizeLayer>(*spec.activation, spec.activation_grad);
}

}  // namespace bitgrad
