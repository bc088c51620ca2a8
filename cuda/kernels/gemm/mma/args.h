// Arguments of the tiled mma.sync products (tile.h), and the kernels that take them.
#pragma once

#include "cuda/device/builtins.h"
#include "cuda/kernels/gemm/output.h"

namespace bitgrad::cuda::gemm {

inline constexpr int kMmaTile = 128, kMmaThreads = 256, kMmaStages = 4, kMmaStageBytes = 64, kMmaPairs = 4;

// One operand. Its codes are bytes or bit planes: value = sum over planes of weight * bit, + shift.
struct MmaSide {
  const uint8_t* data;
  int64_t stride, plane_stride;  // bytes between rows, between planes
  int64_t free;                  // rows
  int64_t row_bytes;             // readable bytes of a row, a multiple of 8
  int32_t shift;
  int32_t bits;
  NumberForm form;
  bool aligned16;  // rows are aligned to 16 bytes
  bool expand;     // codes are expanded to bytes while they are loaded into shared memory
  bool k_major;    // stored [k, free]; only with expand
  bool words;      // bytes stored [k, free] in rows of whole aligned words
};

// A product of two planes. The sums so far are first multiplied by `before`. weight_a and weight_b are the weights of
// the planes' bits in the sums of the operands; 0 if another pair already counts the plane.
struct MmaPair {
  int32_t plane_a, plane_b, before, weight_a, weight_b;
};

struct MmaArgs {
  MmaSide a, b;
  FreeParams pa, pb;
  Output out;
  MmaPair pair[kMmaPairs];
  int32_t pairs, last_weight;
  bool sum_a, sum_b;  // sums over k of the rows of A (B) are needed
  bool simple;        // y = float(acc) * (sa * sb): no zero points, offsets or row_minus
};

// Holds the stages, and later in the same place the sums of the tile, of its rows and of its columns.
inline constexpr int kMmaSharedBytes = 4 * (kMmaTile * kMmaTile + 2 * kMmaTile);
static_assert(kMmaSharedBytes >= 2 * kMmaStages * kMmaTile * kMmaStageBytes);

// s8 x s8 and its unsigned variants.
BITGRAD_GLOBAL void gemm_s8_s8_mma_sm80(MmaArgs args);
BITGRAD_GLOBAL void gemm_s8_u8_mma_sm80(MmaArgs args);
BITGRAD_GLOBAL void gemm_u8_s8_mma_sm80(MmaArgs args);
BITGRAD_GLOBAL void gemm_u8_u8_mma_sm80(MmaArgs args);
// Bits in one or several planes.
BITGRAD_GLOBAL void gemm_bits_mma_sm80(MmaArgs args);
// B of 1 .. 7 bits, unpacked in registers.
#define BITGRAD_WEIGHT_BITS(bits)                               \
  BITGRAD_GLOBAL void gemm_s8_w##bits##_mma_sm80(MmaArgs args); \
  BITGRAD_GLOBAL void gemm_u8_w##bits##_mma_sm80(MmaArgs args);
#include "cuda/kernels/gemm/weight_bits.inc"
#undef BITGRAD_WEIGHT_BITS

}  // namespace bitgrad::cuda::gemm
