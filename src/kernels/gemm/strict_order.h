// The order of summation that a product has in mode strict (docs/numerics.md section 4).
#pragma once

#include "bitgrad/kernels/gemm.h"

namespace bitgrad::gemm_detail {

// A pure function of dtypes, shape and the form of the scales: never of the instruction set, layouts or costs. Every
// order that it names has scalar, AVX2 and AVX-512 rows for these arguments.
SumOrder strict_order(const GemmArgs& args);

}  // namespace bitgrad::gemm_detail
