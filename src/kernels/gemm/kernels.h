// Declares the functions of every kernel in kernels.inc: NAME_supports, NAME_cost and NAME. Each kernel's file includes
// this and defines its own.
#pragma once

#include "bitgrad/kernels/gemm.h"

namespace bitgrad::kernels::gemm_impl {

#define BITGRAD_GEMM_KERNEL(name, ...)   \
  bool name##_supports(const GemmArgs&); \
  double name##_cost(const GemmArgs&);   \
  void name(const GemmArgs&);
#include "kernels/gemm/kernels.inc"
#undef BITGRAD_GEMM_KERNEL

}  // namespace bitgrad::kernels::gemm_impl

// Defines the three functions of a kernel by expressions over their `args`.
#define BITGRAD_DEFINE_GEMM(name, supports, cost, run)            \
  bool name##_supports(const GemmArgs& args) { return supports; } \
  double name##_cost(const GemmArgs& args) { return cost; }       \
  void name(const GemmArgs& args) { run; }

namespace bitgrad::kernels::gemm_detail {

// The summation order of a product in strict mode or with GemmArgs::row_alone (docs/numerics.md section 4).
// A pure function of dtypes, shape and form of the scales, independent of the instruction set, layouts and costs. Every
// order that it returns has scalar, AVX2 and AVX-512 kernels for these arguments.
SumOrder strict_order(const GemmArgs& args);

// In strict mode, and with row_alone, a float kernel may run only if it has that order.
inline bool legal_order(const GemmKernel& kernel, const GemmArgs& args) {
  const bool free = bits_mode() != BitsMode::kStrict && !args.row_alone;
  return free || kernel.order == SumOrder::kExact || kernel.order == strict_order(args);
}

}  // namespace bitgrad::kernels::gemm_detail
