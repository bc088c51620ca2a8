// Ops that look at the pixels of images [n,h,w,c] (NHWC). Numbers: docs/numerics.md section 10, "Images". All throw
// Error on a wrong shape or dtype.
#pragma once

#include "bitgrad/ops/ops.h"

namespace bitgrad {

// y [n, ...] with all axes but the first as one: of an image [n, h*w*c], its pixels one behind the other. Any dtype,
// dense. Codes whose rows are whole words stay where they are, others are packed anew; their scales must be per tensor
// (of any granularity where a sample is one row). The gradient is that of the elements.
Var flatten(const Var& x);

}  // namespace bitgrad
