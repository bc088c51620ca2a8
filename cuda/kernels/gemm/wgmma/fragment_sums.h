// Sums of the code values of rows in layout frag64.
#pragma once

#include "cuda/device/builtins.h"
#include "cuda/kernels/gemm/wgmma/args.h"

namespace bitgrad::cuda::gemm {

struct FragmentSumsArgs {
  FragmentOperand fragments;
  int32_t k_blocks, bits, shift;
  int32_t pad;  // contribution of the padding columns to every row
  int64_t rows;
  int32_t* out;  // [rows]
};

// One block of 128 threads per block of 64 rows.
BITGRAD_GLOBAL void gemm_fragment_sums_simt(FragmentSumsArgs args);

}  // namespace bitgrad::cuda::gemm
