// Arrays of fp32 or bf16 in the arguments of a launch, as pointers of the element type that picks the kernel.
#pragma once

#include <cstdint>

#include "kernels/floats.h"

namespace bitgrad::cuda {

// Calls f with the elements as const float* or const uint16_t* (bf16).
template <typename F>
void with_elements(const kernels::FloatsIn& x, F&& f) {
  x.bf16() ? f(static_cast<const uint16_t*>(x.data)) : f(x.fp32());
}
template <typename F>
void with_elements(const kernels::FloatsOut& y, F&& f) {
  y.bf16() ? f(static_cast<uint16_t*>(y.data)) : f(y.fp32());
}

}  // namespace bitgrad::cuda
