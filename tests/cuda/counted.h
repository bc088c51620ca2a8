// Kernels of the device counted by name, and short forms of specs and layers.
#pragma once

#include <string>
#include <utility>

#include "bitgrad/nn/layers.h"
#include "cuda/runtime/runtime.h"
#include "cuda/same_as_cpu.h"

namespace bitgrad::test {

// How often kernels have run since it was made.
class Counted {
 public:
  explicit Counted(std::string kernel) : kernel_(std::move(kernel)), before_(cuda::detail::launches(kernel_)) {}
  int64_t now() const { return cuda::detail::launches(kernel_) - before_; }

 private:
  std::string kernel_;
  int64_t before_;
};

inline QuantSpec binary(const Granularity& g, bool alpha = true) {
  QuantSpec spec;
  spec.dtype = dtypes::bint1;
  spec.scheme = "binary";
  spec.granularity = alpha ? g : Granularity::tensor();
  spec.alpha = alpha;
  return spec;
}

inline QuantSpec scheme(const std::string& name, DType dtype, const Granularity& g) {
  QuantSpec spec;
  spec.scheme = name;
  spec.dtype = dtype;
  spec.granularity = g;
  return spec;
}

// The layout as bare codes, so that its numbers can be compared: [cols, rows].
inline Tensor transposed_codes(const Tensor& t) {
  const Tensor transposed = t.in_layout(layouts::transposed);
  if (!transposed.defined()) return {};
  Tensor out = Tensor::empty({t.cols(), t.rows()}, t.dtype());
  const int64_t bytes = out.stride() * out.rows();
  if (bytes > 0)
    device_backend(current_device()).copy(CopyWay::kOnDevice, out.data(), bytes, transposed.data(), bytes, bytes, 1);
  return out;
}

inline LayerSpec layer(const std::string& kind, int64_t out = 0) {
  LayerSpec spec;
  spec.kind = kind;
  if (out > 0) spec.attributes = {{"out", out}, {"bias", false}};
  if (kind == "dropout") spec.attributes["p"] = 0.5;
  spec.weight.init = {"glorot_normal", 0, 0};
  return spec;
}

inline LayerSpec quantize_layer(const QuantSpec& quant) {
  LayerSpec spec = layer("quantize");
  spec.activation = ActivationQuant{quant};
  return spec;
}

}  // namespace bitgrad::test
