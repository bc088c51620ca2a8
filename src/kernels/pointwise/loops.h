// The loops of family pointwise as a table of functions, one table per ISA. All tables give bit-identical results.
#pragma once

#include "kernels/isa_loops.h"
#include "kernels/pointwise.h"

namespace bitgrad::kernels::pointwise_loops {

// One entry per PointwiseOp.
struct PointwiseLoops {
  using Loop = void (*)(int64_t n, const float* a, const float* b, float* y);
#define BITGRAD_POINTWISE_FORM(form) Loop form[static_cast<int>(PointwiseOp::kCount)];
#include "kernels/pointwise/kernels.inc"
#undef BITGRAD_POINTWISE_FORM
};

const PointwiseLoops& loops_scalar();
const PointwiseLoops& loops_avx2();
const PointwiseLoops& loops_avx512();
inline const PointwiseLoops& loops() { return best_loops(loops_avx512, loops_avx2, loops_scalar); }

}  // namespace bitgrad::kernels::pointwise_loops
