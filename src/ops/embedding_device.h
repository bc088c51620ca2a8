// Embedding on a device other than the CPU: the same values, with all work in kernels.
#pragma once

#include "bitgrad/autograd/tape.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad::detail {

// Sets a bit in *flags if an id is outside 0 .. rows - 1.
void flag_ids(const Tensor& ids, int64_t rows, uint32_t* flags);
// y [n, t*d] fp32: the dequantized rows of w selected by ids [n, t]; zeros for ids out of range.
void gather_rows(const Tensor& ids, const Tensor& w, const Tensor& y);
// The gradient of the table [v, d]: writes the sum of each row's parts of gy [n, t*d] fp32 to target.out.
void scatter_rows(const Tensor& ids, const Tensor& gy, const GradTarget& target);

}  // namespace bitgrad::detail
