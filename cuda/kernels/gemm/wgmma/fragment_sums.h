// Sums of the numbers of rows in layout frag64.
#pragma once

#include "cuda/device/builtins.h"
#include "cuda/kernels/gemm/wgmma/args.h"

namespace bitgrad::cuda::gemm {

struct FragmentSumsArgs {
  FragmentOperand fragments;
  int32_t k_blocks, bits, shift;
  int32_t pad;  // what the filled up columns add to every row
  int64_t rows;
  int32_t* out;  // [rows]
};

// A block of 128 threads a block of 64 rows.
BITGRAD_GLOBAL void gemm_fragment_sums_simt(FragmentSumsArgs args);

}  // namespace bitgrad::cuda::gemm
