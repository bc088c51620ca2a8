// Arguments of the tiled products by mma.sync (tile.h) and the kernels that take them.
#pragma once

#include "cuda/device/builtins.h"
#include "cuda/kernels/gemm/output.h"

namespace bitgrad::cuda::gemm {

inline constexpr int kMmaTile = 128, kMmaThreads = 256, kMmaStages = 4, kMmaStageBytes = 64, kMmaPairs = 4;

// One operand. Its codes are bytes, or planes of bits: number = sum over planes of weight * bit, + shift.
struct MmaSide {
  const uint8_t* data;
  int64_t stride, plane_stride;  // bytes between rows, between planes
  int64_t free;                  // rows
  int64_t row_bytes;             // that may be read of a row, a multiple of 8
  int32_t shift;
  int32_t bits;
  NumberForm form;
  bool aligned16;  // rows begin on 16 bytes
  bool expand;     // codes are made bytes on the way to shared memory
  bool k_major;    // stored [k, free]; only with expand
  bool words;      // bytes stored [k, free] whose rows are whole aligned words
};

// A product of two planes. The sums so far are multiplied by `before`; weight_a and weight_b: what a bit of the planes
// counts in the sums of the operands (0: counted with another pair).
struct MmaPair {
  int32_t plane_a, plane_b, before, weight_a, weight_b;
};

struct MmaArgs {
  MmaSide a, b;
  FreeParams pa, pb;
  Output out;
  MmaPair pair[kMmaPairs];
  int32_t pairs, last_weight;
  bool sum_a, sum_b;  // sums over k of the rows of A (of B) are needed
  bool simple;        // y = float(acc) * (sa * sb): no zero points, offsets or row_minus
};

// The stages, and later the sums of the tile, of its rows and of its columns, in the same place.
inline constexpr int kMmaSharedBytes = 4 * (kMmaTile * kMmaTile + 2 * kMmaTile);
static_assert(kMmaSharedBytes >= 2 * kMmaStages * kMmaTile * kMmaStageBytes);

// s8 x s8 and its unsigned mixes.
BITGRAD_GLOBAL void gemm_s8_s8_mma_sm80(MmaArgs args);
BITGRAD_GLOBAL void gemm_s8_u8_mma_sm80(MmaArgs args);
BITGRAD_GLOBAL void gemm_u8_s8_mma_sm80(MmaArgs args);
BITGRAD_GLOBAL void gemm_u8_u8_mma_sm80(MmaArgs args);
// Bits, one or several planes.
BITGRAD_GLOBAL void gemm_bits_mma_sm80(MmaArgs args);
// B of 1 .. 7 bits, unpacked in registers.
#define BITGRAD_WEIGHT_BITS(bits)                              \
  BITGRAD_GLOBAL void gemm_s8_w##bits##_mma_sm80(MmaArgs args); \
  BITGRAD_GLOBAL void gemm_u8_w##bits##_mma_sm80(MmaArgs args);
#include "cuda/kernels/gemm/weight_bits.inc"
#undef BITGRAD_WEIGHT_BITS

}  // namespace bitgrad::cuda::gemm
