// Float products in order chain512, C = A * B^T over expanded operands (docs/numerics.md section 4).
//
// For every output, with panels of 512 contracted indices:
//   P_p = one chain acc = fma(a[k], b[k], acc) over ascending k in [512 p, min(512 (p+1), K)), from acc = +0;
//   sum = P_0, then sum = sum + P_p for p = 1, 2, ...;  K = 0: sum = +0.
// If a scale is folded per n: sum * s[n]. Then the epilogue (epilogue.h). a and b are values as in float_operand.h.
// None of this depends on the ISA, the blocking, M, N or the number of threads, so all kernels of this order give the
// same bits.
//
// Blocking (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008): a task
// is a block of C. For each k panel it expands B once into strips [k][nr], and runs the micro-kernel on each of them
// with each strip [k][mr] of A. A small A that several blocks read is expanded beforehand; otherwise each block expands
// it, a few rows at a time.
#pragma once

#include <cstdint>

#include "bitgrad/kernels/gemm.h"
#include "kernels/gemm/common/panel_params.h"

namespace bitgrad::kernels::gemm_detail {

inline constexpr int64_t kChainPanel = 512;

// The same as Transpose, of fp16 or bf16 rows, which become fp32.
using TransposeHalves = void (*)(const uint16_t* const* rows, bool bf16, int64_t kc, int64_t width, float* out);

// The only ISA-specific part. mr and nr must be widths that chain512_pack.cpp lists.
struct ChainKernel {
  int64_t mr, nr;
  // c[i * ldc + j] = P (if add: c + P), i < rows <= mr, j < cols <= nr, where P is the fma chain over kc indices. a:
  // [kc][mr] and b: [kc][nr], both complete.
  void (*run)(int64_t kc, int64_t rows, int64_t cols, const float* a, const float* b, float* c, int64_t ldc, bool add);
  double ns_per_mac;
  Transpose transpose16;               // for 16 rows; may be nullptr
  TransposeHalves halves16 = nullptr;  // the same
};

bool chain512_supports(const GemmArgs& args);
double chain512_cost(const ChainKernel& kernel, const GemmArgs& args);
void run_chain512(const ChainKernel& kernel, const GemmArgs& args);

// Expands operands into the strips that the micro-kernels of chain512 read.

// A block of an operand: free indices [f0, f0 + nf), contracted indices [k0, k0 + kc), kc <= 512.
struct StripBlock {
  const GemmOperand& x;
  bool bare;             // use bare codes instead of values
  const float* k_scale;  // [kc] factors that multiply the values of each k; nullptr: none
  int64_t f0, nf, k0, kc;
};

// out[(f / width) * kc * width + k * width + f % width] for f in [0, nf), zero-padded to a multiple of width. width:
// one of the list in chain512_pack.cpp. transpose16: a faster routine for multiples of 16.
void pack_strips(const StripBlock& block, int64_t width, float* out, Transpose transpose16 = nullptr,
                 TransposeHalves halves16 = nullptr);
// Estimated nanoseconds per expanded element.
double pack_ns_per_element(const GemmOperand& x);

}  // namespace bitgrad::kernels::gemm_detail
