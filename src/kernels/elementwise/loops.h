// The loops of family elementwise as a table of functions, one table per ISA. All tables give bit-identical results.
#pragma once

#include "kernels/elementwise.h"
#include "kernels/isa_loops.h"
#include "kernels/quantize/moment_codes.h"

namespace bitgrad::kernels::elementwise {
inline constexpr int64_t kMomentRun = 4;  // blocks of moments that a loop rounds together

struct ElementwiseLoops {
#define BITGRAD_ISA_LOOP(family, order, result, name, parameters) result(*name) parameters;
#include "kernels/elementwise/kernels.inc"
#undef BITGRAD_ISA_LOOP
  using UnaryForward = void (*)(int64_t n, const float* x, float* y);
  using UnaryBackward = void (*)(int64_t n, const float* x, const float* gy, float* gx);
  UnaryForward unary_forward[static_cast<int>(UnaryOp::kCount)];
  UnaryBackward unary_backward[static_cast<int>(UnaryOp::kCount)];
};

BITGRAD_ISA_TABLES(ElementwiseLoops)

}  // namespace bitgrad::kernels::elementwise
