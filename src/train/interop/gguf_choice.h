// Which type of GGUF a weight becomes.
#pragma once

#include <string>

#include "bitgrad/io/gguf_tensors.h"

namespace bitgrad::interop {

struct GgufChoice {
  GgufType type = GgufType::kF32;
  GgufFit::Kind kind = GgufFit::Kind::kExact;
  double error = 0;         // of kRounded: largest difference of a value, relative to the largest value of the tensor
  std::string reason = {};  // of kRounded and kRefused
  bool one_scale = false;   // blocks have d = 1, and the scale stands in a tensor of its own
};
// Codes take the smallest type that llama.cpp multiplies by at full speed and that keeps them: exactly, else with
// scales rounded to fp16. Floats are F32. scale_tensor: one scale of a whole tensor that is no fp16 number may stand
// beside it.
GgufChoice choose_gguf_type(const Tensor& tensor, bool scale_tensor);

}  // namespace bitgrad::interop
