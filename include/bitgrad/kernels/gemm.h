// Family gemm: C[m,n] = sum_k A[m,k] * B[n,k] over the *values* of quantized operands (docs/numerics.md sections 4, 5).
//
// Integer products (gemm_is_integer): both operands are codes of kind int, uint or sign, each with an integer zero
// point, a real offset, or neither. Scales of A are per tensor or per free index (row m of A, row n of B), or in blocks
// (the last case). Then, by the scales of B:
//   plain: B per tensor or per free index, no offset on either side.
//     acc = sum (qa - za) (qb - zb), exact (- row_minus);
//     y = float(acc) * (sa * sb)  (+ bias[n]).  Without any scale y = float(acc).
//   real offsets m on either side, B per tensor or per free index (omitting terms of an absent m):
//     y = ((float(S_ab)*(sa*sb) + float(S_a)*(sa*mb)) + float(S_b)*(ma*sb)) + float(K)*(ma*mb)  (+ bias[n]),
//     S_ab, S_a, S_b: the exact sums of (qa - za)(qb - zb), qa - za and qb - zb.
//   groups of B along k, of any size, the last may be shorter; scale s[n,g], zero or offset m[n,g] (free side: per
//     tensor, per index or per block of indices); A without offset. t = +0; for each g ascending:
//     t = t + float(acc_g) * s[n,g], with offsets t = t + (float(acc_g) * s[n,g] + float(S_a,g) * m[n,g]);
//     y = t * sa (+ bias). acc_g and S_a,g are the exact sums over the group.
//   blocks of A: groups along k of 2 or more with scales alone; B as in any case above, groups being whole ones of each
//     other; g the smaller ones. With s[n,g] * sa[m,g] for s, m[n,g] * sa[m,g] for m; y = t (+ bias).
//   fold_b_scale: no effect on plain products; the others become float products. fp64 C: in double. int64 saturates.
// Otherwise (a float operand, a codebook, other scales of A along k) the operands are expanded to fp32 on the fly:
//   value = s * (q - z), s * q or s * q + m, each operation rounded once; then the float product in the kernel's order
//   (+ bias[n]). With fold_b_scale, B's scale (per tensor, or one per k, no zero) is multiplied into the values of A
//   instead, and the unscaled codes of B are multiplied. If B's scale is per n, it multiplies the finished sum:
//   y = sum * s[n].
// fp64 operands: both in double, order kFp64. Integer outputs (int32, int64): codes without scales; saturated.
#pragma once

#include "bitgrad/base/rng.h"
#include "bitgrad/dtype/layout.h"
#include "bitgrad/kernels/kernel.h"

namespace bitgrad::kernels {

struct GemmOperand {
  const void* data = nullptr;
  DType dtype = dtypes::fp32;
  Layout layout = layouts::canonical;
  // Bytes between rows of the stored matrix (canonical only; derived layouts define their own geometry).
  int64_t stride = 0;
  bool k_major = false;  // false: stored [free, k]; true: stored [k, free] (canonical, vnni64_t)
  ScaleMap scale;        // in coordinates of the stored matrix
  // Optional, of canonical codes stored [free, k] on a device: [free], for each row the sum of its codes' numbers, of
  // kind sign the number of +1. A kernel that needs them reads the codes themselves where they are absent.
  const int32_t* row_sums = nullptr;
  // Optional, of B in layout vnni64 with groups along k: the same scales in the order in which its kernels read them
  // (kernels/panel_scales.h), fp32 or fp16, so that no call has to order them.
  const void* panel_scales = nullptr;
  DType panel_dtype = dtypes::fp32;
};

// A batch of products of the same form (heads, groups, samples). Member i reads and writes at i times these distances
// from member 0, and has the same bits as a separate call.
struct GemmBatch {
  int64_t count = 1;  // 0: no operation
  // Bytes between members of A and of B, multiples of 8 for codes and of the element size otherwise; 0: shared by all.
  int64_t a = 0, b = 0;
  // Elements between members of C, which must not overlap: consecutive, or side by side within ldc.
  int64_t c = 0;
  int64_t a_scale = 0, b_scale = 0;  // entries of the ScaleMap arrays
  int64_t bias = 0, row_minus = 0;   // entries
};

struct GemmArgs {
  int64_t m = 0, n = 0, k = 0;  // any may be 0; k = 0 gives zeros (+ bias)
  GemmOperand a, b;             // free index m for a, n for b
  void* c = nullptr;
  DType c_dtype = dtypes::fp32;  // fp32, bf16 (rounded once at the end), fp64, int32, int64
  int64_t ldc = 0;               // elements between rows of C, >= n
  const float* bias = nullptr;   // [n]; fp32 and bf16 outputs
  // [m], plain integer products only: subtracted from the exact sums of row i before scaling, for any output. Corrects
  // for a zero point of B that varies along k: sum_k qa[i,k] zb[k].
  const int64_t* row_minus = nullptr;
  bool fold_b_scale = false;
  bool accumulate = false;  // C = round(float(C) + y); fp32, bf16 and fp64; y itself is not rounded first
  // bf16 output: stochastic rounding; the draw is that of element first_element + (member * m + row) * n + column.
  const RandomStream* sr = nullptr;
  int64_t first_element = 0;
  GemmBatch batch = {};
  // Each row of C has the same bits as if it were the only one: it is summed in the order of strict mode for m = 1, in
  // every mode (docs/numerics.md section 4, "One row").
  bool row_alone = false;
};

// A kernel and the layouts in which it reads its operands. supports and cost are per batch member; run does all.
struct GemmKernel : Kernel<GemmArgs> {
  Layout a_layout, b_layout;
};

KernelList<GemmKernel>& gemm_kernels();
// Returns the cheapest usable kernel for the layouts of the operands. Throws Error naming both operands if there is
// none (impossible for canonical operands). Called for every product; takes a few dozen nanoseconds.
const GemmKernel& select_gemm(const GemmArgs& args);
// Returns the cheapest usable kernel if each operand were available in any layout. The derived layouts of a parameter
// are planned with it. Data pointers of `args` may be null.
const GemmKernel& plan_gemm(const GemmArgs& args);
// As above, if B is available only in `b_layouts` (A may be packed into any): for ops whose weight has these layouts.
const GemmKernel& plan_gemm(const GemmArgs& args, std::span<const Layout> b_layouts);
// The same, or nullptr if there is none.
const GemmKernel* find_gemm(const GemmArgs& args, std::span<const Layout> b_layouts);
// Selects a kernel and runs it. Pointers and strides are not checked. select_gemm, plan_gemm and gemm throw Error for a
// batch with a negative count, overlapping members of C, or distances that are not whole elements.
void gemm(const GemmArgs& args);

// True if this product is computed on integer codes (all cases above but the last).
bool gemm_is_integer(const GemmArgs& args);

}  // namespace bitgrad::kernels
