// The 64-bit descriptor of a wgmma operand in shared memory.
//
// Fields (PTX ISA 9.0, "Matrix Descriptor Format"): bits 0-13 start address / 16, 16-29 leading byte offset / 16, 32-45
// stride byte offset / 16, 49-51 base offset, 62-63 swizzle. K-major operands with the 128-byte swizzle ignore the
// leading offset, and the stride is the distance between groups of eight rows.
#pragma once

#include <cstdint>

#include "cuda/device/fragments.h"

namespace bitgrad::cuda {

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
