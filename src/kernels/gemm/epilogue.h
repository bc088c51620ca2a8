// What happens to finished sums: scale, bias, accumulation, rounding, store. docs/numerics.md section 4 (epilogue) and
// 7 (to bf16).
//
// y = float(acc) * (sa[i] * sb[j]), then + bias[j] if there is one, each operation rounded once in fp32.
// fp32: C = y, or C = C + y.  bf16: C = bf16(y), or C = bf16(float(C) + y), stochastic with args.sr: draw of element i
// * n + j. fp64: y = double(acc) * (double(sa[i]) * double(sb[j])), C = y or C + y.  int32, int64: acc, saturated.
#pragma once

#include <cstdint>

#include "bitgrad/kernels/gemm.h"

namespace bitgrad::gemm_detail {

// C[i, j0 .. j0+count) from exact sums whose zero points are corrected. c_dtype: any of the five.
void finish_row(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const int32_t* acc);
void finish_row(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const int64_t* acc);

// C[i, j0 .. j0+count) from sums of floats that hold their scales already; bias is added here. c_dtype: fp32, bf16,
// fp64.
void finish_row(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const float* sum);
// The same from doubles: bias and the old C are added in double; fp32 and bf16 are rounded from that (bf16 by way of
// fp32).
void finish_row(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const double* sum);

}  // namespace bitgrad::gemm_detail
