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

// The 64-bit descriptor of a wgmma operand in shared memory.
//
// Fields (PTX ISA 9.0, "Matrix Descriptor Format"): bits 0-13 start address / 16, 16-29 leading byte offset / 16, 32-45
// stride byte offset / 16, 49-51 base offset, 62-63 swizzle. K-major operands with the 128-byte swizzle ignore the
// leading offset, and the stride is the distance between groups of eight rows.
enum class Swizzle : uint8_t { kNone = 0, k128 = 1, k64 = 2, k32 = 3 };

// All fields in bytes.
struct MatrixDescriptor {
  uint32_t address = 0;  // in shared memory, a multiple of 16, below 256 KiB
  uint32_t leading = 0, stride = 0;
  uint32_t base = 0;  // 0 if the row pattern starts at a multiple of 1024
  Swizzle swizzle = Swizzle::kNone;
  friend constexpr bool operator==(const MatrixDescriptor&, const MatrixDescriptor&) = default;
};

BITGRAD_HD constexpr uint64_t encode(const MatrixDescriptor& d) {
  return uint64_t{(d.address & 0x3FFFFu) >> 4} | uint64_t{(d.leading & 0x3FFFFu) >> 4} << 16 |
         uint64_t{(d.stride & 0x3FFFFu) >> 4} << 32 | uint64_t{d.base & 7u} << 49 |
         static_cast<uint64_t>(d.swizzle) << 62;
}

BITGRAD_HD constexpr MatrixDescriptor decode(uint64_t word) {
  const auto field = [word](int at) { return (static_cast<uint32_t>(word >> at) & 0x3FFFu) << 4; };
  return {field(0), field(16), field(32), static_cast<uint32_t>(word >> 49) & 7u, static_cast<Swizzle>(word >> 62)};
}

// A swizzled tile with rows of 128 bytes, starting at a multiple of 1024.
BITGRAD_HD constexpr uint64_t describe_tile(uint32_t address) {
  return encode({address, 16, kSwizzleBytes, 0, Swizzle::k128});
}

// Advances the descriptor by `steps` steps of k (32 bytes each) within the 128 bytes of a row.
BITGRAD_HD constexpr uint64_t advance(uint64_t descriptor, int steps) {
  return descriptor + static_cast<uint64_t>(steps) * (kStepBytes >> 4);
}

// Shared memory address of byte `byte` (0 .. 31) of row `row` of a K-major operand in canonical layout. Groups of eight
// rows are `stride` apart; rows within a group are 128, 64, 32 or 16 bytes apart. The swizzle xors the index of the
// 16-byte chunk (address bits 4 and up) with address bits 7 and up.
BITGRAD_HD constexpr uint32_t operand_address(const MatrixDescriptor& d, int row, int byte) {
  const uint32_t group = static_cast<uint32_t>(row / kSwizzleRows),
                 in_group = static_cast<uint32_t>(row % kSwizzleRows);
  switch (d.swizzle) {
    case Swizzle::kNone:
      return d.address + group * d.stride + static_cast<uint32_t>(byte / 16) * d.leading + in_group * 16 +
             static_cast<uint32_t>(byte % 16);
    case Swizzle::k32: {
      const uint32_t at = d.address + group * d.stride + in_group * 32 + static_cast<uint32_t>(byte);
      return at ^ ((at >> 3) & 0x10u);
    }
    case Swizzle::k64: {
      const uint32_t at = d.address + group * d.stride + in_group * 64 + static_cast<uint32_t>(byte);
      return at ^ ((at >> 3) & 0x30u);
    }
    default: {
      const uint32_t at = d.address + group * d.stride + in_group * 128 + static_cast<uint32_t>(byte);
      return at ^ ((at >> 3) & 0x70u);
    }
  }
}

}  // namespace bitgrad::cuda

namespace bitgrad::cuda::mma {

// Fragment layouts of mma.sync in steps of 32 bytes (PTX ISA, "Matrix fragments for mma.m16n8k32", "m16n8k256" and
// "m16n8k16"): which matrix element each register of a lane contains. m16n8k32 on bytes, m16n8k256 on bits and m16n8k16
// on bf16 place their bytes identically.
//   A [16 rows][32 bytes], B [8 columns][32 bytes], D [16 rows][8 columns] of int32 (fp32 for bf16).

inline constexpr int kRows = 16, kColumns = 8, kBytes = 32, kRegistersA = 4, kRegistersB = 2, kRegistersD = 4;

// Register r of a lane contains four consecutive bytes of a row (A) or column (B).
BITGRAD_HD constexpr int a_row(int lane, int r) { return lane / 4 + 8 * (r % 2); }
BITGRAD_HD constexpr int a_byte(int lane, int r) { return lane % 4 * 4 + 16 * (r / 2); }
BITGRAD_HD constexpr int b_column(int lane, int) { return lane / 4; }
BITGRAD_HD constexpr int b_byte(int lane, int r) { return lane % 4 * 4 + 16 * r; }
BITGRAD_HD constexpr int d_row(int lane, int r) { return lane / 4 + 8 * (r / 2); }
BITGRAD_HD constexpr int d_column(int lane, int r) { return lane % 4 * 2 + r % 2; }

// ldmatrix: each of four matrices has 8 rows of 16 bytes. Lanes 8i .. 8i + 7 supply the row addresses of matrix i; lane
// l receives bytes 4 (l % 4) .. 4 (l % 4) + 3 of row l / 4 of each matrix. For an A fragment lane l therefore points to
// row l % 16 and 16-byte chunk l / 16; for two B fragments (columns 0..7, 8..15), to column l % 8 + 8 (l / 16) and
// chunk l / 8 % 2.
BITGRAD_HD constexpr int load_a_row(int lane) { return lane % 16; }
BITGRAD_HD constexpr int load_a_chunk(int lane) { return lane / 16; }
BITGRAD_HD constexpr int load_b_column(int lane) { return lane % 8 + lane / 16 * 8; }
BITGRAD_HD constexpr int load_b_chunk(int lane) { return lane / 8 % 2; }

// Offset of 16-byte chunk `chunk` of row `row` in shared memory, for rows of 64 bytes. The swizzle spreads the eight
// rows of an ldmatrix, and the four rows copied by a quarter-warp, over all banks.
BITGRAD_HD constexpr int swizzle64(int row, int chunk) { return row * 64 + ((chunk ^ (row >> 1)) & 3) * 16; }

}  // namespace bitgrad::cuda::mma
