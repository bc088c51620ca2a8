// Small kernels around the wgmma products: sums of raw codes, and C from the sums of split products.
#include "cuda/kernels/gemm/wgmma/args.h"
#include "cuda/kernels/gemm/wgmma/output.h"

namespace bitgrad::cuda::gemm {

// Lanes read words of 4 bytes (rows in memory are multiples of 8 bytes) and mask the last one.
BITGRAD_GLOBAL void gemm_code_sums_simt(CodeSumsArgs args) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int64_t row = static_cast<int64_t>(blockIdx.x) * (kCodeSumsThreads / 32) + threadIdx.x / 32;
  const CodeSumsSide& side = row < args.a.rows ? args.a : args.b;
  if (row >= args.a.rows) row -= args.a.rows;
  if (row >= side.rows) return;
  const uint32_t* words = reinterpret_cast<const uint32_t*>(side.x.data + row * side.x.stride);
  const int64_t bits = args.k * side.x.bits;
  int32_t sum = 0;
  for (int64_t w = lane; w * 32 < bits; w += 32) {
    const int64_t left = bits - w * 32;
    const uint32_t word = left < 32 ? words[w] & ((1u << left) - 1u) : words[w];
    if (side.x.bits == 1) {
      sum += __popc(word);
    } else if (side.x.form == NumberForm::kSigned) {
      sum = __dp4a(static_cast<int>(word), 0x01010101, sum);
    } else {
      sum = static_cast<int32_t>(__dp4a(word, 0x01010101u, static_cast<unsigned>(sum)));
    }
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
  if (lane == 0) side.out[row] = sum;
}

BITGRAD_GLOBAL void gemm_split_finish_simt(const BITGRAD_GRID_CONSTANT WgmmaArgs args) {
  const auto m = static_cast<int32_t>(args.out.m), n = static_cast<int32_t>(args.out.n), pieces = (n + 7) / 8;
  const int64_t piece = int64_t{blockIdx.x} * kSplitFinishThreads + threadIdx.x;
  const auto i = static_cast<int32_t>(piece / pieces), j = static_cast<int32_t>(piece % pieces) * 8;
  if (i < m) finish_piece(args, i, j, n - j < 8 ? n - j : 8, args.split.sums + int64_t{i} * n + j);
}

}  // namespace bitgrad::cuda::gemm
