// The layer kind "quantize": an activation quantizer (nn/activation_quantizer.h) as a layer of its own.
#include "bitgrad/nn/layers.h"
#include "nn/activation_quantizer.h"

namespace bitgrad {

LayerKind quantize_kind() {
  LayerKind kind;
  kind.name = "quantize";
  kind.doc = "quantizes activations by quant.activations; the layer's keys override it";
  kind.quantizer = LayerKind::Quantizer::kActivations;
  kind.output = LayerKind::Output::kNone;
  kind.bf16 = true;
  kind.make = [](const LayerSpec& spec) {
    require(spec.activation.has_value(), "quantize", "needs quantized activations (dtype, scheme)");
    return std::make_shared<ActivationQuantizer>(*spec.activation);
  };
  return kind;
}

}  // namespace bitgrad
