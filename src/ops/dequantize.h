// Values of codes, and of int32 sums with a scale, as fp32. Shared by the ops that need them.
#pragma once

#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// Codes: s * (q - z), or s * q + m. int32 with a scale (or none): float(q) * s, each operation rounded once. Throws
// Error that names `op` for other dtypes, and for int32 with a zero point or an offset.
Tensor values_of(std::string_view op, const Tensor& x, MemoryKind kind = MemoryKind::kActivation);

}  // namespace bitgrad
