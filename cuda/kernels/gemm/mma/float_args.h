// Arguments of the products of floats and codes by mma.sync (float_tile.h), and the kernels that take them.
//
// A (fp32 or bf16) is multiplied by B's codes, which bf16 represents exactly. A bf16 A is used directly; an fp32 value
// is split into three bf16 parts (docs/numerics.md section 4, "parts3"). B's scale is applied to the sum, to the sums
// of groups of k, or to A's values before they are split.
#pragma once

#include <algorithm>

#include "cuda/device/builtins.h"
#include "cuda/kernels/gemm/output.h"

namespace bitgrad::cuda::gemm {

// A block of 256 threads computes a tile of 128 x 128 in steps of 32 of k, three of which are in shared memory.
inline constexpr int kFloatTile = 128, kFloatThreads = 256, kFloatStages = 3, kFloatStep = 32;
// Columns per warp when A is split. B's scale along k may differ between these column blocks, but not within one.
inline constexpr int kFoldColumns = 64;

// Rows of an operand as stored.
struct FloatRows {
  const uint8_t* data;
  int64_t stride, rows, row_bytes;  // bytes between rows, rows, readable bytes of a row
  int32_t unit;                     // bytes per copy: 16, 4, or 2 (plain loads)
};

struct FloatMmaArgs {
  FloatRows a, b;
  NumberForm form;      // of B's codes
  bool narrow;          // A is bf16
  ScaleMap scale;       // B's
  bool on_sum, fold;    // where the scale is applied; if neither, to groups, or there is no scale
  int32_t group_steps;  // steps of k in a group
  Output out;
};

// Kernels for one code width: both operands in rows of k, the same with groups, and B stored [k, n].
#define BITGRAD_FLOAT_MMA(bits)                                               \
  BITGRAD_GLOBAL void gemm_bf16_w##bits##_mma_sm80(FloatMmaArgs args);        \
  BITGRAD_GLOBAL void gemm_f32_w##bits##_mma_sm80(FloatMmaArgs args);         \
  BITGRAD_GLOBAL void gemm_bf16_w##bits##_groups_mma_sm80(FloatMmaArgs args); \
  BITGRAD_GLOBAL void gemm_f32_w##bits##_groups_mma_sm80(FloatMmaArgs args);  \
  BITGRAD_GLOBAL void gemm_bf16_w##bits##_t_mma_sm80(FloatMmaArgs args);      \
  BITGRAD_GLOBAL void gemm_f32_w##bits##_t_mma_sm80(FloatMmaArgs args);
#define BITGRAD_WEIGHT_BITS(bits) BITGRAD_FLOAT_MMA(bits)
#include "cuda/kernels/gemm/weight_bits.inc"
#undef BITGRAD_WEIGHT_BITS
BITGRAD_FLOAT_MMA(8)
#undef BITGRAD_FLOAT_MMA
// A stored [k, m] as well.
#define BITGRAD_FLOAT_MMA(bits)                                            \
  BITGRAD_GLOBAL void gemm_bf16_t_w##bits##_t_mma_sm80(FloatMmaArgs args); \
  BITGRAD_GLOBAL void gemm_f32_t_w##bits##_t_mma_sm80(FloatMmaArgs args);
BITGRAD_FLOAT_MMA(1)
BITGRAD_FLOAT_MMA(2)
BITGRAD_FLOAT_MMA(4)
BITGRAD_FLOAT_MMA(8)
#undef BITGRAD_FLOAT_MMA

// Bytes of shared memory per step and per block. A block uses the space for its steps, later for the sums of the tile
// in rows of kFloatPitch.
BITGRAD_HD constexpr int float_step_bytes(bool narrow_products, int bits, bool turned_a, bool turned_b) {
  const int a = kFloatTile * kFloatStep * (narrow_products ? 2 : 4) + (turned_a ? 128 : 0);
  const int b = kFloatTile * kFloatStep * bits / 8 + (turned_b ? 128 : 0);
  const int fold = turned_b && !narrow_products ? kFloatTile / kFoldColumns * kFloatStep * 4 : 0;
  return a + b + fold;
}
inline constexpr int kFloatPitch = kFloatTile + 4;
inline constexpr int kFloatSharedBytes =
    std::max(kFloatStages * float_step_bytes(false, 8, true, true), kFloatTile* kFloatPitch * 4);

}  // namespace bitgrad::cuda::gemm
