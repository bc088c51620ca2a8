// How a product with B in layout vnni64 is cut: blocks of C, slabs and blocks of k, and which operands are unpacked or
// read in place.
#pragma once

#include "kernels/gemm/bytes/s8_expand.h"
#include "kernels/gemm/bytes/s8_vnni64.h"
#include "kernels/gemm/common/operands.h"

namespace bitgrad::kernels::gemm_detail {

inline constexpr int64_t kS8PanelMaxRows = 256;                  // of a block of C
inline constexpr int64_t kS8PanelChunkBytes = int64_t{1} << 19;  // hide the cost of a parallel loop

// Everything about the call that is the same for all blocks of C.
struct S8PanelPlan {
  const GemmArgs& args;
  const S8PanelKernel& kernel;
  int bits, fields, shift;  // of B; f = 1 << shift
  int64_t lowest;           // lowest code of B: c
  int max;                  // largest u
  ByteRange a;
  bool in_place;  // whether A is read in place
  bool several;   // whether there are several slabs
  bool opens;     // whether B is unpacked to bytes, unless the last group is narrow
  bool direct;
  int64_t slab, depth, rows, columns;
  int64_t panels, steps;
  bool beta_varies, alphas;  // whether beta varies by column; whether any alpha is nonzero
  const int32_t* column_sums;

  S8PanelPlan(const GemmArgs& args_in, const S8PanelKernel& kernel_in);
  int64_t alpha(int64_t i) const {
    return a.shift - (args.a.scale.zero == nullptr ? 0 : args.a.scale.zero[free_param(args.a, i)]);
  }
  int64_t beta(int64_t j) const {
    return lowest - (args.b.scale.zero == nullptr ? 0 : args.b.scale.zero[free_param(args.b, j)]);
  }
};

}  // namespace bitgrad::kernels::gemm_detail
