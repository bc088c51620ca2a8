// The loops of family pointwise as a table of functions, one table per ISA. All tables give bit-identical results.
#pragma once

#include "bitgrad/base/cpu.h"
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

// The table for the best ISA that cpu_isa() currently allows.
inline const PointwiseLoops& loops() {
  const IsaMask granted = cpu_isa();
  if (granted & isa::kAvx512) return loops_avx512();
  return granted & isa::kAvx2 ? loops_avx2() : loops_scalar();
}

}  // namespace bitgrad::kernels::pointwise_loops
