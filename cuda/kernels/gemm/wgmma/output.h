// Converts raw sums of the wgmma products to C, eight adjacent elements at a time. Formulas: args.h and gemm/output.h.
#pragma once

#include "cuda/device/builtins.h"
#include "cuda/device/fragments.h"
#include "cuda/kernels/gemm/wgmma/args.h"

namespace bitgrad::cuda::gemm {

// Stores C[i, j .. j + 8) in 16-byte stores, from final sums that fit in int32.
BITGRAD_HD inline void store_eight(const WgmmaArgs& args, int32_t i, int32_t j, const int32_t* sums) {
  const Output& out = args.out;
  const float sa = args.a.scale == nullptr ? 1.0f : args.a.scale[i * args.a.step];
  uint32_t words[8];
  BITGRAD_UNROLL
  for (int e = 0; e < 8; ++e) {
    const float sb = args.b.scale == nullptr ? 1.0f : args.b.scale[(j + e) * args.b.step];
    float y = static_cast<float>(sums[e]) * (sa * sb);
    if (out.bias != nullptr) y = y + out.bias[j + e];
    words[e] = bits_of_float(y);
  }
  const int64_t at = int64_t{i} * out.ldc + j;
  if (out.form == OutputForm::kFp32) {
    uint4* c = reinterpret_cast<uint4*>(static_cast<float*>(out.c) + at);
    c[0] = uint4{words[0], words[1], words[2], words[3]};
    c[1] = uint4{words[4], words[5], words[6], words[7]};
    return;
  }
  BITGRAD_UNROLL
  for (int e = 0; e < 8; ++e) words[e] = round_to_bf16(float_of_bits(words[e]));
  *reinterpret_cast<uint4*>(static_cast<uint16_t*>(out.c) + at) =
      uint4{words[0] | words[1] << 16, words[2] | words[3] << 16, words[4] | words[5] << 16, words[6] | words[7] << 16};
}

// Stores C[i, j .. j + count) from raw sums, count <= 8.
BITGRAD_HD inline void finish_piece(const WgmmaArgs& args, int32_t i, int32_t j, int32_t count, const int32_t* raw) {
  const Output& out = args.out;
  const bool is_float = out.form == OutputForm::kFp32 || out.form == OutputForm::kBf16;
  const int64_t bytes = (int64_t{i} * out.ldc + j) * (out.form == OutputForm::kFp32 ? 4 : 2);
  const bool aligned = (reinterpret_cast<uint64_t>(out.c) + static_cast<uint64_t>(bytes)) % 16 == 0;
  if (is_float && !args.rule.wide && count == 8 && aligned && !out.accumulate && !out.stochastic) {
    int32_t sums[8];
    for (int e = 0; e < 8; ++e)
      sums[e] = args.rule.plain ? raw[e] >> args.rule.shift : static_cast<int32_t>(exact_sum(args, i, j + e, raw[e]));
    return store_eight(args, i, j, sums);
  }
  BITGRAD_NO_UNROLL
  for (int e = 0; e < count; ++e) {
    const int64_t sum = args.rule.plain ? raw[e] >> args.rule.shift : exact_sum(args, i, j + e, raw[e]);
    store_plain(out, args.a, args.b, i, j + e, sum);
  }
}

// Products with few tiles and long k: parts of k run in parallel and add their raw sums in memory; another kernel
// converts the sums to C.

// Adds the warpgroup's sums of rows row .. row + 63, columns from `column` on, to those of the other parts.
template <int kCount>
BITGRAD_DEVICE inline void add_to_sums(const WgmmaArgs& args, const int32_t (&d)[kCount], int row, int column) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const auto m = static_cast<int>(args.out.m), n = static_cast<int>(args.out.n);
  BITGRAD_UNROLL
  for (int i = 0; i < kCount; ++i) {
    const TilePoint p = accumulator_point(thread, i);
    if (row + p.row < m && column + p.column < n)
      atomicAdd(args.split.sums + int64_t{row + p.row} * n + column + p.column, d[i]);
  }
}

// Each thread computes eight adjacent elements of C.
inline constexpr int kSplitFinishThreads = 256;
BITGRAD_GLOBAL void gemm_split_finish_simt(const BITGRAD_GRID_CONSTANT WgmmaArgs args);

}  // namespace bitgrad::cuda::gemm
