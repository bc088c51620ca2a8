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
