// Arguments of the wgmma products, and the conversion of raw sums to C.
//
// The tensor cores sum raw codes: R = sum ra rb. A code's value is factor * raw - base - zero (bint1: 2 raw - 1; all
// others: factor 1, base 0), so the exact sum is
//   fa fb R - fa zb SA[i] - fb za SB[j] + K za zb,   za = base_a + zero_a[i], zb likewise,
// minus row_minus[i]. SA and SB are the sums of raw codes. For weights unpacked to the top of their bytes, R is scaled
// by 2^shift. C then follows from output.h.
#pragma once

#include <cstdint>

#include "bitgrad/base/device.h"
#include "cuda/device/builtins.h"
#include "cuda/device/fragments.h"
#include "cuda/device/tma.h"
#include "cuda/kernels/gemm/operand.h"
#include "cuda/kernels/gemm/output.h"

namespace bitgrad::cuda::gemm {

// The order in which a persistent grid visits the tiles of C: bands of `band` tile rows, each column by column. Blocks
// that run at the same time then share few rows of A and columns of B, and find them in the L2 cache.
struct TileSchedule {
  int32_t rows = 0, columns = 0;  // tiles
  int32_t band = 1;

  BITGRAD_HD constexpr int32_t count() const { return rows * columns; }
  // Tile `index`, 0 <= index < count(). Visits each tile once.
  BITGRAD_HD constexpr TilePoint at(int32_t index) const {
    const int32_t per_band = band * columns, first = index / per_band * band;
    const int32_t height = rows - first < band ? rows - first : band, inside = index % per_band;
    return {first + inside % height, inside / height};
  }
};

struct SumRule {
  int32_t shift = 0;
  int32_t factor_a = 1, factor_b = 1, base_a = 0, base_b = 0;
  const int32_t* sum_a = nullptr;  // [m], raw codes of A summed over k; needed if B has a base or zero points
  const int32_t* sum_b = nullptr;  // [n]
  bool plain = true;               // the exact sum is R >> shift
  bool wide = false;               // has zero points or row_minus: may exceed int32
};

// An operand of 1..7 bits in layout frag64, unpacked in registers (dtype/layouts/frag64.h).
struct FragmentOperand {
  const uint8_t* data = nullptr;
  int32_t row_blocks = 0;  // blocks of 64 rows
  // byte = ((top-aligned code >> down) & mask) * times ^ flip, on four codes at once
  int32_t down = 0;
  uint32_t mask = ~0u, times = 1, flip = 0;
};

// How the sums of a tile become C. kGeneral goes through a staging buffer of sums and supports every output (output.h).
// kBf16 and kFp32 store from the fragments (store.h). With kSplit the tile does not write C; it adds its partial sums
// to SplitSums::sums.
enum class WgmmaStore : uint8_t { kGeneral, kBf16, kFp32, kSplit };
BITGRAD_HD constexpr bool is_fragment_store(WgmmaStore store) {
  return store == WgmmaStore::kBf16 || store == WgmmaStore::kFp32;
}

// Rows or columns of the tile, for stores from fragments. extra is times * sum[i] + base, or the bits of bias[i].
struct StoreSide {
  const float* scale = nullptr;  // null: 1
  const int32_t* sum = nullptr;
  const float* bias = nullptr;
  int32_t step = 1;  // of scale; 0: one scale for all
  int32_t times = 0, base = 0;
  int32_t count = 0;
};

inline constexpr int kBoxRows = 64;
// y = float(factor (raw >> shift) + extra_row + extra_column) * (scale_row scale_column) (+ bias).
struct FragmentStore {
  TensorMap c;  // boxes of kBoxRows rows of 128 bytes
  StoreSide rows, columns;
  int32_t factor = 1;
  bool bias = false;
};

// A product whose k is split into parts, each processed by its own blocks of the grid. Raw sums are integers that fit
// in int32, so the order of addition does not matter.
struct SplitSums {
  int32_t parts = 1;        // at most k_blocks
  int32_t* sums = nullptr;  // [m, n], zero-initialized
};

struct WgmmaArgs {
  TensorMap rows, columns;    // operands of the tile's rows and columns, K-major bytes
  FragmentOperand fragments;  // in place of `rows`
  int32_t k_blocks = 0;       // of 128 bytes, at least 1
  TileSchedule schedule;      // in tiles of a cluster
  Output out;
  FreeParams a, b;
  SumRule rule;
  FragmentStore store;
  SplitSums split;
};

// The exact sum of element (i, j), saturated to int64.
BITGRAD_HD inline int64_t exact_sum(const WgmmaArgs& args, int32_t i, int32_t j, int32_t raw) {
  const SumRule& rule = args.rule;
  const int32_t sum = raw >> rule.shift;
  const int32_t sum_a = rule.sum_a == nullptr ? 0 : rule.sum_a[i], sum_b = rule.sum_b == nullptr ? 0 : rule.sum_b[j];
  if (!rule.wide) {
    const int64_t za = rule.base_a, zb = rule.base_b;
    return int64_t{rule.factor_a * rule.factor_b} * sum - rule.factor_a * zb * sum_a - rule.factor_b * za * sum_b +
           args.out.k * za * zb;
  }
  const int64_t za = int64_t{rule.base_a} + (args.a.zero == nullptr ? 0 : args.a.zero[i * args.a.step]);
  const int64_t zb = int64_t{rule.base_b} + (args.b.zero == nullptr ? 0 : args.b.zero[j * args.b.step]);
  using Wide = gemm_detail::Int128;
  Wide exact = Wide{rule.factor_a * rule.factor_b} * sum - Wide{rule.factor_a * zb} * sum_a -
               Wide{rule.factor_b * za} * sum_b + Wide{args.out.k * za} * zb;
  if (args.out.row_minus != nullptr) exact -= args.out.row_minus[i];
  return gemm_detail::saturate_sum(static_cast<gemm_detail::UInt128>(exact));
}

// Sums of the code values of rows in layout frag64.
struct FragmentSumsArgs {
  FragmentOperand fragments;
  int32_t k_blocks, bits, shift;
  int32_t pad;  // contribution of the padding columns to every row
  int64_t rows;
  int32_t* out;  // [rows]
};

// One block of 128 threads per block of 64 rows.
BITGRAD_GLOBAL void gemm_fragment_sums_simt(FragmentSumsArgs args);

// ---- sums of raw codes along the rows of a K-major operand, which correct products of bits and with zero points ----
// One operand; skipped if it has no rows.
struct CodeSumsSide {
  Operand x;  // 1 bit: set bits; 8 bits: codes of forms kSigned, kUnsigned
  int64_t rows;
  int32_t* out;  // [rows]
};
// Both operands of a product in one launch.
struct CodeSumsArgs {
  CodeSumsSide a, b;
  int64_t k;
};

inline constexpr int kCodeSumsThreads = 256;  // one warp per row

BITGRAD_GLOBAL void gemm_code_sums_simt(CodeSumsArgs args);

}  // namespace bitgrad::cuda::gemm
