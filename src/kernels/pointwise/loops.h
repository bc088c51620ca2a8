// The loops of family pointwise as a table of functions, one table per ISA. All tables give bit-identical results.
#pragma once

#include "kernels/isa_loops.h"
#include "kernels/pointwise.h"

namespace bitgrad::kernels::pointwise_loops {

// One entry per PointwiseOp.
struct PointwiseLoops {
  using Loop = void (*)(int64_t n, const float* a, const float* b, float* y);
  // n elements of a and n of b; or a single element of that operand for all n
  Loop both[static_cast<int>(PointwiseOp::kCount)], one_a[static_cast<int>(PointwiseOp::kCount)],
      one_b[static_cast<int>(PointwiseOp::kCount)];
};

BITGRAD_ISA_TABLES(PointwiseLoops)

}  // namespace bitgrad::kernels::pointwise_loops
