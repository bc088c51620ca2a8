// What happens to finished sums: scale, bias, accumulation, rounding, store. docs/numerics.md section 4 (epilogue) and
// 7 (to bf16).
//
// y = float(acc) * (sa[i] * sb[j]), then + bias[j] if there is one, each operation rounded once in fp32.
// fp32: C = y, or C = C + y.  bf16: C = bf16(y), or C = bf16(float(C) + y), stochastic with args.sr: draw of element i
// * n + j. fp64: y = double(acc) * (double(sa[i]) * double(sb[j])), C = y or C + y.  int32, int64: acc, saturated.
#pragma once

#include <cstdint>

#include "bitgrad/kernels/gemm.h"

namespace bitgrad::kernels::gemm_detail {

// C[i, j0 .. j0+count) from exact sums whose zero points are corrected. c_dtype: any of the five.
void finish_row(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const int32_t* acc);
void finish_row(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const int64_t* acc);

// The same with real offsets. acc: S_ab, sum_a: S_a of row i, sum_b: S_b of the columns. c_dtype: fp32, bf16, fp64.
// Sum: int32_t, int64_t.
template <typename Sum>
void finish_offsets(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const Sum* acc, Sum sum_a,
                    const Sum* sum_b);

// t[j] = t[j] + what the group of contracted index k adds to column j0 + j. Sum: int32_t, int64_t. Float: float,
// double.
template <typename Sum, typename Float>
void add_group(const GemmArgs& args, int64_t j0, int64_t count, int64_t k, const Sum* acc, Sum sum_a, Float* t);
// C[i, j0 .. j0+count) from finished t, which is scaled in place. Float: float (fp32, bf16), double (fp64).
template <typename Float>
void finish_groups(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, Float* t);

// C[i, j0 .. j0+count) from sums of floats that hold their scales already; bias is added here. c_dtype: fp32, bf16,
// fp64.
void finish_row(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const float* sum);
// The same from doubles: bias and the old C are added in double; fp32 and bf16 are rounded from that (bf16 by way of
// fp32).
void finish_row(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const double* sum);

}  // namespace bitgrad::kernels::gemm_detail
