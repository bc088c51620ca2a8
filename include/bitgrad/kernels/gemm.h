// Family gemm: C[m,n] = sum_k A[m,k] * B[n,k], on the *values* of quantized operands (docs/numerics.md sections 4 and
// 5).
//
// Integer products (gemm_is_integer): both operands codes of kind int, uint or sign, each with an integer zero point, a
// real offset, or neither. A's scales are per tensor or per free index (row m of A, row n of B). By B's scales:
//   plain: B per tensor or per free index, no offset on either side.
//     acc = sum (qa - za) (qb - zb), exact (- row_minus);
//     y = float(acc) * (sa * sb)  (+ bias[n]).  Without any scale y = float(acc).
//   real offsets m on either side, B per tensor or per free index:
//     y = ((float(S_ab)*(sa*sb) + float(S_a)*(sa*mb)) + float(S_b)*(ma*sb)) + float(K)*(ma*mb)  (+ bias[n]),
//     terms of an absent m left out; S_ab, S_a, S_b the exact sums of (qa - za)(qb - zb), of qa - za and of qb - zb.
//   groups of B along k, of any size, the last one ragged; scale s[n,g], zero or offset m[n,g] (their free side may be
//     per tensor, per free index or per block of free indices); A without offset. t = +0; for each g ascending:
//     t = t + float(acc_g) * s[n,g], with offsets t = t + (float(acc_g) * s[n,g] + float(S_a,g) * m[n,g]);  y = t * sa
//     (+ bias). acc_g and S_a,g: the exact sums over the group.
//   fold_b_scale has no effect on plain products and makes the other two float products. An fp64 C takes these formulas
//   in double. Sums beyond int64 saturate.
// Otherwise (a float, a codebook, a scale of A along k) the operands are expanded to fp32 on the fly:
//   value = s * (q - z), s * q or s * q + m, each operation rounded once, then the float product in the kernel's order
//   (+ bias[n]). With fold_b_scale, B's scale (per tensor, or one per k, no zero) is multiplied into A's numbers
//   instead, and B's bare numbers are multiplied; a B whose scale is per n then gets it on the finished sum: y = sum *
//   s[n].
// fp64 operands: both sides in double, order kFp64. Integer outputs (int32, int64): bare codes, no scales, saturated to
// the output's range.
#pragma once

#include "bitgrad/base/rng.h"
#include "bitgrad/dtype/layout.h"
#include "bitgrad/kernels/kernel.h"

namespace bitgrad::kernels {

struct GemmOperand {
  const void* data = nullptr;
  DType dtype = dtypes::fp32;
  Layout layout = layouts::canonical;
  // Bytes between rows of the stored matrix (canonical only; derived layouts know their own geometry).
  int64_t stride = 0;
  bool k_major = false;  // false: stored [free, k]; true: stored [k, free] (canonical, vnni64_t)
  ScaleMap scale;        // in coordinates of the stored matrix
  // Optional, of canonical codes stored [free, k] on a device: [free], for each row the sum of its codes' numbers, of
  // kind sign the number of +1. A kernel that needs them reads the codes themselves where they are absent.
  const int32_t* row_sums = nullptr;
};

// Products of one form that are adjacent (heads, groups, samples): member i reads and writes at i times these
// distances from member 0, and has the bits of the product alone.
struct GemmBatch {
  int64_t count = 1;  // 0: nothing is done
  // Bytes between the members of A and of B, multiples of 8 for codes and of an element for others; 0: all read the
  // same one.
  int64_t a = 0, b = 0;
  int64_t c = 0;  // elements; members of C must not overlap: one after another, or side by side within ldc
  int64_t a_scale = 0, b_scale = 0;  // entries of the arrays of ScaleMap
  int64_t bias = 0, row_minus = 0;   // entries
};

struct GemmArgs {
  int64_t m = 0, n = 0, k = 0;  // any may be 0: k = 0 gives zeros (+ bias)
  GemmOperand a, b;             // free index m for a, n for b
  void* c = nullptr;
  DType c_dtype = dtypes::fp32;  // fp32, bf16 (one rounding at the end), fp64, int32, int64
  int64_t ldc = 0;               // elements between rows of C, >= n
  const float* bias = nullptr;   // [n], fp32 and bf16 outputs
  // [m], plain integer products only: taken from the exact sums of row i before they are scaled, for any output. It
  // corrects a zero point of B that runs along k: sum_k qa[i,k] zb[k].
  const int64_t* row_minus = nullptr;
  bool fold_b_scale = false;
  bool accumulate = false;  // C = round(float(C) + y), fp32, bf16 and fp64; y itself is not rounded before
  // bf16 output: stochastic rounding, element first_element + (member * m + row) * n + column
  const RandomStream* sr = nullptr;
  int64_t first_element = 0;
  GemmBatch batch = {};
  // A row of C has the bits that it has as the only one: the order of summation is that of mode strict for m = 1, in
  // every mode (docs/numerics.md section 4, "One row").
  bool row_alone = false;
};

// A kernel plus the layouts in which it reads its operands. supports and cost refer to one member of a batch; run
// handles all.
struct GemmKernel : Kernel<GemmArgs> {
  Layout a_layout, b_layout;
};

std::span<const GemmKernel> gemm_kernels();
void register_gemm_kernels(std::span<const GemmKernel> kernels);  // of another device
// The cheapest usable kernel whose layouts are those of the operands. Throws Error that names both operands when there
// is none (it cannot happen for canonical operands). Looked up per call; costs a few dozen nanoseconds.
const GemmKernel& select_gemm(const GemmArgs& args);
// The cheapest usable kernel if each operand could be had in any layout: what a parameter's derived layouts are planned
// from. Data pointers of `args` may be null.
const GemmKernel& plan_gemm(const GemmArgs& args);
// The same when B is available only in `b_layouts` (A may be packed into any): for an op whose weight has these
// layouts.
const GemmKernel& plan_gemm(const GemmArgs& args, std::span<const Layout> b_layouts);
// Selects and runs. No checks of pointers or strides, but of a batch: select_gemm, plan_gemm and gemm throw Error for a
// negative count, members of C that overlap, and steps that are no whole elements.
void gemm(const GemmArgs& args);

// True if the product of these operands is taken on integer codes (the first three cases above).
bool gemm_is_integer(const GemmArgs& args);

}  // namespace bitgrad::kernels
