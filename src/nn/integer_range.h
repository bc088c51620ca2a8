// Value ranges of int32 sums with a scale, from which requantization computes its scale.
#pragma once

#include "bitgrad/tensor/tensor.h"

namespace bitgrad::detail {

struct IntegerRange {
  Tensor low, high;  // fp32 values, one per block; 0 for a block without elements
};
// x [n,f] is int32 without a scale, or with one that is not negative. One block for all of x, or one per row.
IntegerRange integer_range(const Tensor& x, bool per_row);

}  // namespace bitgrad::detail
