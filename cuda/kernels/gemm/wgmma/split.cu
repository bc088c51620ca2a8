#include "cuda/kernels/gemm/wgmma/split.h"

#include "cuda/kernels/gemm/wgmma/output.h"

namespace bitgrad::cuda::gemm {

BITGRAD_GLOBAL void gemm_split_finish_simt(const BITGRAD_GRID_CONSTANT WgmmaArgs args) {
  const auto m = static_cast<int32_t>(args.out.m), n = static_cast<int32_t>(args.out.n), pieces = (n + 7) / 8;
  const int64_t piece = int64_t{blockIdx.x} * kSplitFinishThreads + threadIdx.x;
  const auto i = static_cast<int32_t>(piece / pieces), j = static_cast<int32_t>(piece % pieces) * 8;
  if (i < m) finish_piece(args, i, j, n - j < 8 ? n - j : 8, args.split.sums + int64_t{i} * n + j);
}

}  // namespace bitgrad::cuda::gemm
