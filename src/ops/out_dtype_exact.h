// Exact products and sums of bare integers, written as an integer dtype (saturated) or fp32 (rounded once).
// docs/numerics.md section 4, out_dtype.
#pragma once

#include "bitgrad/tensor/tensor.h"
#include "ops/map/exact.h"

namespace bitgrad::detail {

// An integer tensor as read by maps.
maps::exact::Source exact_source(const Tensor& t);

// Whether out_dtype supports this output dtype: int32, int64, int and uint codes, fp32.
bool exact_output(DType dtype);

// y[i,j] = sum_k a[i,k] * b[j,k]; b_k_major: b is stored as [k,j]. Sets kFlagSaturated in flag, if given.
void exact_product(const Tensor& a, const Tensor& b, bool b_k_major, const Tensor& y, uint32_t* flag);

// y = a * b, or a + b, for equal shapes.
void exact_mul(const Tensor& a, const Tensor& b, const Tensor& y, uint32_t* flag);
void exact_add(const Tensor& a, const Tensor& b, const Tensor& y, uint32_t* flag);

}  // namespace bitgrad::detail
