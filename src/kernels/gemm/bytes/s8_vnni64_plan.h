// How a product with B in layout vnni64 is cut: blocks of C, slabs and blocks of k, what is opened and what is read
// where it lies.
#pragma once

#include "kernels/gemm/bytes/s8_expand.h"
#include "kernels/gemm/bytes/s8_vnni64.h"
#include "kernels/gemm/common/operands.h"

namespace bitgrad::kernels::gemm_detail {

inline constexpr int64_t kS8PanelMaxRows = 256;                  // of a block of C
inline constexpr int64_t kS8PanelChunkBytes = int64_t{1} << 19;  // hide a parallel loop

// Everything about the call that does not depend on the block of C.
struct S8PanelPlan {
  const GemmArgs& args;
  const S8PanelKernel& kernel;
  int bits, fields, shift;  // of B; f = 1 << shift
  int64_t lowest;           // code of B: c
  int max;                  // u
  ByteRange a;
  bool in_place;  // A
  bool several;   // slabs
  bool opens;     // B to bytes, unless the last group is narrow
  bool direct;
  int64_t slab, depth, rows, columns;
  int64_t panels, steps;
  bool beta_varies, alphas;  // beta by column; any alpha but 0
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
