// Where the elements of a tile lie: shared memory under the 128-byte swizzle, and the registers of a warpgroup. Pure
// index maps, the same on host and device.
//
// A step of k is 32 bytes of every row, whatever an element is (32 codes of 8 bits, 256 bits, 16 bf16), so one map
// serves all types. Source: PTX ISA 9.0, "Register Fragments and Shared Memory Matrix Layouts" of wgmma.
#pragma once

#include <cstdint>

#include "bitgrad/base/host_device.h"

namespace bitgrad::cuda {

inline constexpr int kWarpgroup = 128;   // threads
inline constexpr int kStepBytes = 32;    // bytes of k of one wgmma
inline constexpr int kBlockBytes = 128;  // bytes of k of one row of a stage: the span of the swizzle
inline constexpr int kSwizzleRows = 8;   // rows after which the swizzle repeats
inline constexpr int kSwizzleBytes = kSwizzleRows * kBlockBytes;

// Byte at which byte `offset` of a tile of rows of 128 bytes lies: the 16-byte chunk within a row is xored with the row
// modulo 8. Its own inverse. The tile begins at a multiple of 1024 bytes.
BITGRAD_HD constexpr uint32_t swizzle128(uint32_t offset) { return offset ^ ((offset >> 3) & 0x70u); }

struct TilePoint {
  int row, column;
  friend constexpr bool operator==(const TilePoint&, const TilePoint&) = default;
};

// Element of D [64, N] (32-bit) that thread `thread` of the warpgroup holds in register `index`, 0 <= index < N / 2.
BITGRAD_HD constexpr TilePoint accumulator_point(int thread, int index) {
  const int warp = thread / 32, lane = thread % 32;
  return {16 * warp + lane / 4 + 8 * (index / 2 % 2), 8 * (index / 4) + 2 * (lane % 4) + index % 2};
}

// Byte of A [64, 32 bytes] that thread `thread` holds in byte `byte` of operand register `index`, 0 <= index < 4.
BITGRAD_HD constexpr TilePoint operand_point(int thread, int index, int byte) {
  const int warp = thread / 32, lane = thread % 32;
  return {16 * warp + lane / 4 + 8 * (index % 2), 16 * (index / 2) + 4 * (lane % 4) + byte};
}

}  // namespace bitgrad::cuda
