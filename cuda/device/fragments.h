// Index maps of a tile: its layout in shared memory with the 128-byte swizzle, and in the registers of a warpgroup.
// Identical on host and device.
//
// A step of k is 32 bytes of every row for every element type (32 codes of 8 bits, 256 bits, 16 bf16), so one map
// serves them all. Source: PTX ISA 9.0, "Register Fragments and Shared Memory Matrix Layouts" of wgmma.
#pragma once

#include <cstdint>

#include "bitgrad/base/device.h"

namespace bitgrad::cuda {

inline constexpr int kWarpgroup = 128;   // threads
inline constexpr int kStepBytes = 32;    // bytes of k per wgmma
inline constexpr int kBlockBytes = 128;  // bytes of k per row of a stage: the span of the swizzle
inline constexpr int kSwizzleRows = 8;   // period of the swizzle in rows
inline constexpr int kSwizzleBytes = kSwizzleRows * kBlockBytes;

// Location of byte `offset` of a tile with rows of 128 bytes: the index of the 16-byte chunk within a row is xored with
// the row modulo 8. The map is its own inverse. The tile starts at a multiple of 1024 bytes.
BITGRAD_HD constexpr uint32_t swizzle128(uint32_t offset) { return offset ^ ((offset >> 3) & 0x70u); }

struct TilePoint {
  int row, column;
  friend constexpr bool operator==(const TilePoint&, const TilePoint&) = default;
};

// The element of D [64, N] (32-bit) in register `index` of thread `thread` of the warpgroup, 0 <= index < N / 2.
BITGRAD_HD constexpr TilePoint accumulator_point(int thread, int index) {
  const int warp = thread / 32, lane = thread % 32;
  return {16 * warp + lane / 4 + 8 * (index / 2 % 2), 8 * (index / 4) + 2 * (lane % 4) + index % 2};
}

// The byte of A [64, 32 bytes] in byte `byte` of operand register `index` of thread `thread`, 0 <= index < 4.
BITGRAD_HD constexpr TilePoint operand_point(int thread, int index, int byte) {
  const int warp = thread / 32, lane = thread % 32;
  return {16 * warp + lane / 4 + 8 * (index % 2), 16 * (index / 2) + 4 * (lane % 4) + byte};
}

}  // namespace bitgrad::cuda
