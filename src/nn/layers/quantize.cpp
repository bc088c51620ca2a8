// The layer kind "quantize": an activation quantizer (nn/activation_quantizer.h) as a layer of its own.
#include "bitgrad/nn/layers.h"
#include "nn/activation_quantizer.h"

namespace bitgrad {

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

}  // namespace bitgrad
