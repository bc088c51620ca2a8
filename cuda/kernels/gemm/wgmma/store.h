// Stores the sums of a tile to C straight from the fragments: scales and corrections come from registers and a small
// table in shared memory, and boxes of 64 rows of 128 bytes are written by TMA. For a bf16 or fp32 C that is
// overwritten, in rows that TMA can write. Formulas: FragmentStore (args.h). Operations run in the order of store_plain
// (gemm/output.h).
//
// A thread has two rows of the tile (accumulator_point), whose scales and corrections are loaded before the products
// start. Those of the columns are filled in by the idle warps of the producer while the products run.
#pragma once

#include "cuda/device/builtins.h"
#include "cuda/device/matrix_store.h"
#include "cuda/device/tma.h"
#include "cuda/kernels/gemm/wgmma/args.h"

// Hidden from host code that only launches kernels.
#if defined(__CUDACC__) || defined(BITGRAD_CUDA_EMULATED)

namespace bitgrad::cuda::gemm {

inline constexpr int kBoxBytes = kBoxRows * kBlockBytes;
inline constexpr int kFillThreads = 96;  // of the producer's warpgroup: warps 1 to 3

// Scales and corrections of two adjacent columns.
struct alignas(16) ColumnPair {
  float scale0, scale1;
  int32_t extra0, extra1;
};
// Scales and corrections of a thread's rows r and r + 8.
struct RowPair {
  float scale0, scale1;
  int32_t extra0, extra1;
};

BITGRAD_HD inline int32_t bits_as_int(float x) { return static_cast<int32_t>(bits_of_float(x)); }
BITGRAD_HD inline float int_as_float(int32_t x) { return float_of_bits(static_cast<uint32_t>(x)); }

// Loads the scale and correction of row or column i. Past the end it repeats the last ones; those results are clipped.
BITGRAD_DEVICE inline void load_side(const StoreSide& side, int i, float& scale, int32_t& extra) {
  i = i < side.count ? i : side.count - 1;
  scale = side.scale == nullptr ? 1.0f : side.scale[i * side.step];
  extra = side.base;
  if (side.sum != nullptr) extra += side.times * side.sum[i];
  if (side.bias != nullptr) extra = bits_as_int(side.bias[i]);
}
BITGRAD_DEVICE inline RowPair load_row_pair(const WgmmaArgs& args, int row) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const int first = row + accumulator_point(thread, 0).row;
  RowPair out;
  load_side(args.store.rows, first, out.scale0, out.extra0);
  load_side(args.store.rows, first + 8, out.scale1, out.extra1);
  return out;
}
// Called by kFillThreads threads.
BITGRAD_DEVICE inline void fill_columns(const WgmmaArgs& args, ColumnPair* columns, int count, int column, int thread) {
  for (int pair = thread; pair < count / 2; pair += kFillThreads) {
    ColumnPair out;
    load_side(args.store.columns, column + 2 * pair, out.scale0, out.extra0);
    load_side(args.store.columns, column + 2 * pair + 1, out.scale1, out.extra1);
    columns[pair] = out;
  }
}

// Offset of 16-byte chunk `chunk` of a row of a box.
BITGRAD_HD constexpr int box_byte(int row, int chunk) {
  return static_cast<int>(swizzle128(static_cast<uint32_t>(row * kBlockBytes + chunk * 16)));
}
// The matrix row address that lane `lane` of warp `warp` supplies, for groups `group` and group + 1 of eight columns.
// If transposed, columns of the tile are rows of the box.
template <bool kTransposed>
BITGRAD_HD constexpr int matrix_byte(int warp, int lane, int group) {
  const int matrix = lane / 8, half = matrix % 2, at = group + matrix / 2;
  return kTransposed ? box_byte(8 * at + lane % 8, 2 * warp + half) : box_byte(16 * warp + 8 * half + lane % 8, at);
}

// Converts a sum to an element of C. With kSums, the extras correct the sum. Otherwise the extras of the rows (if
// kTransposed) or columns are biases.
template <bool kSums, bool kTransposed>
struct Finish {
  int32_t factor, shift;
  bool bias;

  BITGRAD_DEVICE float operator()(int32_t raw, float scale_row, int32_t extra_row, float scale_column,
                                  int32_t extra_column) const {
    if constexpr (kTransposed) raw = raw >> shift;
    if constexpr (kSums) raw = factor * raw + (extra_row + extra_column);
    float y = static_cast<float>(raw) * (scale_row * scale_column);
    if constexpr (!kSums)
      if (bias) y = y + int_as_float(kTransposed ? extra_row : extra_column);
    return y;
  }
  // Converts registers d[0 .. 4) of a group of eight columns.
  BITGRAD_DEVICE void four(const int32_t* d, const RowPair& rows, const ColumnPair& c, float (&y)[4]) const {
    y[0] = (*this)(d[0], rows.scale0, rows.extra0, c.scale0, c.extra0);
    y[1] = (*this)(d[1], rows.scale0, rows.extra0, c.scale1, c.extra1);
    y[2] = (*this)(d[2], rows.scale1, rows.extra1, c.scale0, c.extra0);
    y[3] = (*this)(d[3], rows.scale1, rows.extra1, c.scale1, c.extra1);
  }
};

struct alignas(8) TwoFloats {
  float a, b;
};

// Writes 64 columns of the tile in bf16: registers d[0 .. 32).
template <bool kTransposed, typename Rule>
BITGRAD_DEVICE inline void write_box_bf16(const Rule& rule, const int32_t* d, const RowPair& rows,
                                          const ColumnPair* columns, uint8_t* box) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup, warp = thread / 32, lane = thread % 32;
  BITGRAD_UNROLL
  for (int group = 0; group < 8; group += 2) {
    float y[2][4];
    BITGRAD_UNROLL
    for (int h = 0; h < 2; ++h) rule.four(d + (group + h) * 4, rows, columns[(group + h) * 4 + lane % 4], y[h]);
    const uint32_t words[4] = {pack_bf16(y[0][0], y[0][1]), pack_bf16(y[0][2], y[0][3]), pack_bf16(y[1][0], y[1][1]),
                               pack_bf16(y[1][2], y[1][3])};
    store_matrices<kTransposed>(box + matrix_byte<kTransposed>(warp, lane, group), words);
  }
}
// Writes 32 columns in fp32: registers d[0 .. 16).
template <typename Rule>
BITGRAD_DEVICE inline void write_box_fp32(const Rule& rule, const int32_t* d, const RowPair& rows,
                                          const ColumnPair* columns, uint8_t* box) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup, lane = thread % 32;
  const int row = accumulator_point(thread, 0).row;
  BITGRAD_UNROLL
  for (int group = 0; group < 4; ++group) {
    float y[4];
    rule.four(d + group * 4, rows, columns[group * 4 + lane % 4], y);
    const int chunk = 2 * group + lane % 4 / 2, at = lane % 2 * 8;
    *reinterpret_cast<TwoFloats*>(box + box_byte(row, chunk) + at) = TwoFloats{y[0], y[1]};
    *reinterpret_cast<TwoFloats*>(box + box_byte(row + 8, chunk) + at) = TwoFloats{y[2], y[3]};
  }
}

// Stores a warpgroup's sums, from row `row` and column `column` of the tile operands, to C. `staging` has space for two
// boxes. Waits for the boxes of the previous tile; those of this one are still in flight on return.
template <WgmmaStore kStore, bool kSums, bool kTransposed, int kCount>
BITGRAD_DEVICE inline void store_fragments(const WgmmaArgs& args, const int32_t (&d)[kCount], const RowPair& rows,
                                           const ColumnPair* columns, uint8_t* staging, int row, int column,
                                           int barrier) {
  static_assert(!kTransposed || kStore == WgmmaStore::kBf16, "fp32 would be written word by word");
  constexpr int kWide = kStore == WgmmaStore::kBf16 ? 64 : 32, kSize = kBlockBytes / kWide;
  const Finish<kSums, kTransposed> rule{args.store.factor, args.rule.shift, args.store.bias};
  const bool leads = threadIdx.x % kWarpgroup == 0;
  BITGRAD_UNROLL
  for (int chunk = 0; chunk < 2 * kCount / kWide; ++chunk) {
    uint8_t* const box = staging + chunk % 2 * kBoxBytes;
    if (leads) tma_store_wait_read<1>();
    named_barrier_sync(barrier, kWarpgroup);
    if constexpr (kStore == WgmmaStore::kBf16)
      write_box_bf16<kTransposed>(rule, d + chunk * kWide / 2, rows, columns + chunk * kWide / 2, box);
    else
      write_box_fp32(rule, d + chunk * kWide / 2, rows, columns + chunk * kWide / 2, box);
    tma_store_fence();
    named_barrier_sync(barrier, kWarpgroup);
    if (!leads) continue;
    const int at = column + chunk * kWide;
    if constexpr (kTransposed)
      tma_store(&args.store.c, box, row * kSize, at);
    else
      tma_store(&args.store.c, box, at * kSize, row);
    tma_store_commit();
  }
}

}  // namespace bitgrad::cuda::gemm

#endif
