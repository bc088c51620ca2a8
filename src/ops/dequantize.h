// Converts codes, and int32 sums with a scale, to fp32 values. Shared by the ops that need it.
#pragma once

#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// Codes: s * (q - z), or s * q + m. int32, with or without a scale: float(q) * s, each operation rounded once. Throws
// Error that names `op` for other dtypes, and for int32 with a zero point or an offset.
Tensor values_of(std::string_view op, const Tensor& x, MemoryKind kind = MemoryKind::kActivation);

}  // namespace bitgrad
