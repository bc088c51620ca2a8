// Addition of gradients.
#pragma once

#include "bitgrad/tensor/tensor.h"

namespace bitgrad::detail {

// into = left + into, fp32 or bf16 (added in fp32, rounded once to nearest even). Contiguous, same shape and dtype.
void add_left(const Tensor& left, const Tensor& into);

}  // namespace bitgrad::detail
