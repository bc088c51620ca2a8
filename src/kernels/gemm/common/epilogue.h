// Processing of finished sums: scale, bias, accumulation, rounding, store. docs/numerics.md sections 4 (epilogue) and 7
// (to bf16).
//
// y = float(acc) * (sa[i] * sb[j]), then + bias[j] if there is one; each operation is rounded once in fp32.
// fp32: C = y, or C = C + y.  bf16: C = bf16(y), or C = bf16(float(C) + y), rounded stochastically with args.sr using
// the draw of element i * n + j. fp64: y = double(acc) * (double(sa[i]) * double(sb[j])), C = y or C + y.  int32,
// int64: acc, saturated.
#pragma once

#include <cstdint>

#include "bitgrad/kernels/gemm.h"

namespace bitgrad::kernels::gemm_detail {

// Writes C[i, j0 .. j0+count) from exact sums with zero points already corrected. c_dtype: any of the five.
void finish_row(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const int32_t* acc);
void finish_row(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const int64_t* acc);

// The same with real offsets. acc: S_ab, sum_a: S_a of row i, sum_b: S_b of the columns. c_dtype: fp32, bf16, fp64.
// Sum: int32_t or int64_t.
template <typename Sum>
void finish_offsets(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const Sum* acc, Sum sum_a,
                    const Sum* sum_b);

// t[j] = t[j] + the contribution to row i, column j0 + j of the group that contains contracted index k. Sum: int32_t or
// int64_t. Float: float or double.
template <typename Sum, typename Float>
void add_group(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, int64_t k, const Sum* acc, Sum sum_a,
               Float* t);
// Writes C[i, j0 .. j0+count) from finished t, which is scaled in place unless A has groups. Float: float (fp32, bf16)
// or double (fp64).
template <typename Float>
void finish_groups(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, Float* t);

// Writes C[i, j0 .. j0+count) from float sums that already include their scales; bias is added here. c_dtype: fp32,
// bf16, fp64.
void finish_row(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const float* sum);
// The same for doubles: bias and the old C are added in double, and fp32 and bf16 results are rounded from that (bf16
// via fp32).
void finish_row(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const double* sum);

}  // namespace bitgrad::kernels::gemm_detail
