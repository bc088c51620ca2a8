// Float products in order chain512, C = A * B^T over expanded operands (docs/numerics.md section 4).
//
// For every output, with panels of 512 contracted indices:
//   P_p = one chain acc = fma(a[k], b[k], acc) over ascending k in [512 p, min(512 (p+1), K)), from acc = +0;
//   sum = P_0, then sum = sum + P_p for p = 1, 2, ...;  K = 0: sum = +0.
// With a scale folded per n: sum * s[n]. Then the epilogue (epilogue.h). a and b are values of float_operand.h.
// Nothing of this depends on the ISA, the blocking, M, N or the threads, so all kernels of this order give the same
// bits.
//
// Blocking (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008): a task
// is a block of C; for each k panel it expands B once into strips [k][nr], and runs the micro-kernel on each pair of
// them and strips [k][mr] of A. An A that several blocks read, and that is small, is expanded before them; else each
// block expands it, a few rows at a time.
#pragma once

#include <cstdint>

#include "bitgrad/kernels/gemm.h"

namespace bitgrad::kernels::gemm_detail {

inline constexpr int64_t kChainPanel = 512;

// out[k * width + i] = rows[i][k] for i below a fixed number of rows, k < kc.
using Transpose = void (*)(const float* const* rows, int64_t kc, int64_t width, float* out);

// The only part that knows an ISA. mr and nr are widths that chain512_pack.cpp lists.
struct ChainKernel {
  int64_t mr, nr;
  // c[i * ldc + j] = P (add: c + P), i < rows <= mr, j < cols <= nr, with P the fma chain over kc indices. a: [kc][mr],
  // b: [kc][nr], both whole.
  void (*run)(int64_t kc, int64_t rows, int64_t cols, const float* a, const float* b, float* c, int64_t ldc, bool add);
  double ns_per_mac;
  Transpose transpose16;  // of 16 rows; nullptr: none
};

bool chain512_supports(const GemmArgs& args);
double chain512_cost(const ChainKernel& kernel, const GemmArgs& args);
void run_chain512(const ChainKernel& kernel, const GemmArgs& args);

}  // namespace bitgrad::kernels::gemm_detail
