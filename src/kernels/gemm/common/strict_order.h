// The order of summation that a product has in mode strict, or with GemmArgs::row_alone (docs/numerics.md section 4).
#pragma once

#include "bitgrad/kernels/gemm.h"

namespace bitgrad::kernels::gemm_detail {

// A pure function of dtypes, shape and the form of the scales: never of the instruction set, layouts or costs. Every
// order that it names has scalar, AVX2 and AVX-512 kernels for these arguments.
SumOrder strict_order(const GemmArgs& args);

// In mode strict, and for rows that stand alone, a float kernel runs only if its order is that one.
inline bool legal_order(const GemmKernel& kernel, const GemmArgs& args) {
  const bool free = bits_mode() != BitsMode::kStrict && !args.row_alone;
  return free || kernel.order == SumOrder::kExact || kernel.order == strict_order(args);
}

}  // namespace bitgrad::kernels::gemm_detail
