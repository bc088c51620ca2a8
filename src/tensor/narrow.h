// fp32 matrices that are held as fp16 or bf16, in which their values are exact: for weights that are only read.
#pragma once

#include "bitgrad/tensor/tensor.h"

namespace bitgrad::detail {

inline bool is_narrow(DType dtype) { return dtype == dtypes::fp16 || dtype == dtypes::bf16; }

// The values of a dense fp16 or bf16 tensor without scales on the CPU as fp32, whose bytes are made, and count, from
// the first call of data() on (Storage::on_demand).
Tensor widened_on_demand(const Tensor& narrow);

// What a tensor of widened_on_demand holds, in its shape; undefined once the fp32 bytes exist, which may have been
// written since, and for other tensors. Views and other shapes have none.
Tensor narrow_of(const Tensor& t);

}  // namespace bitgrad::detail
