// Chooses the GGUF type of a weight.
#pragma once

#include <string>

#include "bitgrad/io/gguf_tensors.h"

namespace bitgrad::interop {

struct GgufChoice {
  GgufType type = GgufType::kF32;
  GgufFit::Kind kind = GgufFit::Kind::kExact;
  double error = 0;         // kRounded: largest difference of a value, relative to the tensor's largest value
  std::string reason = {};  // for kRounded and kRefused
  bool one_scale = false;   // blocks have d = 1, and the scale is in a tensor of its own
};
// Codes get the smallest type that llama.cpp multiplies at full speed and that preserves them: exactly, or else with
// scales rounded to fp16. Floats are F32. scale_tensor: a scale per tensor that is not representable in fp16 may be
// stored in a separate tensor.
GgufChoice choose_gguf_type(const Tensor& tensor, bool scale_tensor);

}  // namespace bitgrad::interop
