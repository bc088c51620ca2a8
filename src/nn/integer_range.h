// Ranges of int32 sums with a scale: what requantization finds its scale from.
#pragma once

#include "bitgrad/tensor/tensor.h"

namespace bitgrad::detail {

struct IntegerRange {
  Tensor low, high;  // fp32, of the values, one per block; 0 for a block without elements
};
// x [n,f] int32 with a scale of at least 0, or none. One block in all, or one per row.
IntegerRange integer_range(const Tensor& x, bool per_row);

}  // namespace bitgrad::detail
