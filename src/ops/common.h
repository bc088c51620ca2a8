// Shared by ops: checks, and gradients widened for computing.
#pragma once

#include <string_view>

#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// A gradient in its edge's dtype as numbers to compute with: bf16 becomes fp32, fp32 and fp64 stay. Dense.
Tensor wide(const Tensor& gradient);
// fp32 or fp64, canonical, dense, without scales; else Error.
void require_float(std::string_view op, std::string_view what, const Tensor& x);
void require_same(std::string_view op, const Tensor& a, const Tensor& b);

}  // namespace bitgrad
