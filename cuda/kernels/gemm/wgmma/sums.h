// Sums of raw codes along the rows of a K-major operand, which correct products of bits and of codes with zero points.
#pragma once

#include "cuda/device/builtins.h"
#include "cuda/kernels/gemm/operand.h"

namespace bitgrad::cuda::gemm {

// One operand; skipped if it has no rows.
struct CodeSumsSide {
  Operand x;  // 1 bit: set bits; 8 bits: codes of forms kSigned, kUnsigned
  int64_t rows;
  int32_t* out;  // [rows]
};
// Both operands of a product in one launch.
struct CodeSumsArgs {
  CodeSumsSide a, b;
  int64_t k;
};

inline constexpr int kCodeSumsThreads = 256;  // one warp per row

BITGRAD_GLOBAL void gemm_code_sums_simt(CodeSumsArgs args);

}  // namespace bitgrad::cuda::gemm
