// Embedding on a device that is not the CPU: the same numbers, all work in kernels.
#pragma once

#include "bitgrad/autograd/tape.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad::detail {

// *flags gets a bit where an id is none of 0 .. rows - 1.
void flag_ids(const Tensor& ids, int64_t rows, uint32_t* flags);
// y [n, t*d] fp32: the values of the rows of w that ids [n, t] name; zeros where there is no such row.
void gather_rows(const Tensor& ids, const Tensor& w, const Tensor& y);
// The gradient of the table [v, d]: rows of target.out get the sums of their parts of gy [n, t*d] fp32.
void scatter_rows(const Tensor& ids, const Tensor& gy, const GradTarget& target);

}  // namespace bitgrad::detail
