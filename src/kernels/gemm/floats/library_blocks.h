// How products computed by another library are cut into tasks: by shape alone, so that the bits do not depend on the
// number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bitgrad/base/parallel.h"
#include "kernels/gemm/common/operands.h"

namespace bitgrad::kernels::gemm_detail {

// Calls body(i0, rows, j0, columns) for the blocks of C, in parallel. The longer side is cut into at most 8 blocks,
// each at least 128 long and with at least 4 M multiply-adds.
template <typename Body>
void for_library_blocks(const GemmArgs& args, Body&& body) {
  const bool cut_m = args.m > args.n;
  const int64_t side = cut_m ? args.m : args.n;
  const auto by_work = static_cast<int64_t>(std::min(8.0, multiply_adds(args) / 4e6));
  const int64_t blocks = std::max<int64_t>(1, std::min(by_work, side / 128));
  const int64_t size = round_up(ceil_div(side, blocks), 64);
  parallel_ranges(side, size, [&](int64_t begin, int64_t end) {
    cut_m ? body(begin, end - begin, int64_t{0}, args.n) : body(int64_t{0}, args.m, begin, end - begin);
  });
}

// Address at which free index f of an operand starts.
inline const void* free_start(const GemmOperand& x, int64_t f) {
  return static_cast<const char*>(x.data) + f * (x.k_major ? x.dtype.bits() / 8 : x.stride);
}

// Whether both operands are floats of this dtype, without parameters or anything specific to integer products.
inline bool plain_operands(const GemmArgs& args, DType dtype) {
  return args.a.dtype == dtype && args.b.dtype == dtype && args.a.scale.trivial() && args.b.scale.trivial() &&
         args.row_minus == nullptr;
}

}  // namespace bitgrad::kernels::gemm_detail
