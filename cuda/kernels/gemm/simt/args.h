// Arguments of the products for few rows of A, and the kernels that take them.
#pragma once

#include "cuda/device/builtins.h"
#include "cuda/kernels/gemm/output.h"

namespace bitgrad::cuda::gemm {

inline constexpr int kSimtThreads = 256, kSimtRows = 4;

// Rows of canonical codes: value = weighted planes (or bytes) + shift.
struct SimtSide {
  const uint32_t* data;
  int64_t stride, words;  // 32-bit words between rows; readable words of a row
  int32_t weight[2];      // of the bit planes
  int32_t shift;
  NumberForm form;
  bool aligned16;
};

struct SimtArgs {
  SimtSide a, b;
  FreeParams pa, pb;
  Output out;
  int32_t split;  // warps that share a column, each with a part of k
  bool simple, sum_a, sum_b;
};

#define BITGRAD_WEIGHT_BITS(bits) BITGRAD_GLOBAL void gemm_s8_w##bits##_dp4a_simt(SimtArgs args);
#include "cuda/kernels/gemm/weight_bits.inc"
BITGRAD_WEIGHT_BITS(8)
#undef BITGRAD_WEIGHT_BITS
BITGRAD_GLOBAL void gemm_b1_b1_popc_simt(SimtArgs args);
BITGRAD_GLOBAL void gemm_b1_b2_popc_simt(SimtArgs args);
BITGRAD_GLOBAL void gemm_b2_b1_popc_simt(SimtArgs args);
BITGRAD_GLOBAL void gemm_b2_b2_popc_simt(SimtArgs args);

}  // namespace bitgrad::cuda::gemm
