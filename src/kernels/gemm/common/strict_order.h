// The summation order of a product in strict mode or with GemmArgs::row_alone (docs/numerics.md section 4).
#pragma once

#include "bitgrad/kernels/gemm.h"

namespace bitgrad::kernels::gemm_detail {

// A pure function of dtypes, shape and form of the scales, independent of the instruction set, layouts and costs. Every
// order that it returns has scalar, AVX2 and AVX-512 kernels for these arguments.
SumOrder strict_order(const GemmArgs& args);

// In strict mode, and with row_alone, a float kernel may run only if it has that order.
inline bool legal_order(const GemmKernel& kernel, const GemmArgs& args) {
  const bool free = bits_mode() != BitsMode::kStrict && !args.row_alone;
  return free || kernel.order == SumOrder::kExact || kernel.order == strict_order(args);
}

}  // namespace bitgrad::kernels::gemm_detail
