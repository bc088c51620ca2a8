// Declares the functions of every row of kernels.inc: NAME_supports, NAME_cost and NAME. Each row's file includes this
// and defines its own.
#pragma once

#include "bitgrad/kernels/gemm.h"

namespace bitgrad::gemm_rows_detail {

#define BITGRAD_GEMM_ROW(name, ...)      \
  bool name##_supports(const GemmArgs&); \
  double name##_cost(const GemmArgs&);   \
  void name(const GemmArgs&);
#include "kernels/gemm/kernels.inc"
#undef BITGRAD_GEMM_ROW

}  // namespace bitgrad::gemm_rows_detail
