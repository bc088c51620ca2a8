// Unpacks codes of layout frag64 into the operand registers of wgmma. The fields of the parts are joined at the top of
// their bytes (a code of b bits times 2^(8 - b)), and one rule for all kinds converts the result to a signed byte:
//   int: the byte itself, scale 2^(8 - b); uint: one bit lower, scale 2^(7 - b); sign: 0, 1 -> -1, +1 by times 254,
//   flipped. An exact shift removes the scale from the sums (SumRule::shift).
#pragma once

#include "cuda/device/builtins.h"
#include "cuda/kernels/gemm/wgmma/args.h"
#include "dtype/layouts/frag64.h"

namespace bitgrad::cuda::gemm {

// The words of one thread for 128 bytes of k (four steps).
template <int kBits>
struct FragmentWords {
  uint32_t part4[8], part2[4], part1[2];
};

template <int kBits>
BITGRAD_DEVICE inline FragmentWords<kBits> load_fragments(const uint8_t* block, int thread) {
  FragmentWords<kBits> words;
  if constexpr ((kBits & 4) != 0) {
    BITGRAD_UNROLL
    for (int i = 0; i < 2; ++i) {
      const uint4 x = *reinterpret_cast<const uint4*>(block + frag64_layout::word_byte(4, thread, 4 * i));
      words.part4[4 * i] = x.x;
      words.part4[4 * i + 1] = x.y;
      words.part4[4 * i + 2] = x.z;
      words.part4[4 * i + 3] = x.w;
    }
    block += frag64_layout::block_bytes(4);
  }
  if constexpr ((kBits & 2) != 0) {
    const uint4 x = *reinterpret_cast<const uint4*>(block + frag64_layout::word_byte(2, thread, 0));
    words.part2[0] = x.x;
    words.part2[1] = x.y;
    words.part2[2] = x.z;
    words.part2[3] = x.w;
    block += frag64_layout::block_bytes(2);
  }
  if constexpr ((kBits & 1) != 0) {
    const uint2 x = *reinterpret_cast<const uint2*>(block + frag64_layout::word_byte(1, thread, 0));
    words.part1[0] = x.x;
    words.part1[1] = x.y;
  }
  return words;
}

// Moves field `field` of kPart bits of every byte to bit kAt of the byte.
template <int kPart, int kAt>
BITGRAD_HD constexpr uint32_t move_field(uint32_t word, int field) {
  const int from = field * kPart;
  const uint32_t moved = from >= kAt ? word >> (from - kAt) : word << (kAt - from);
  return moved & ((((1u << kPart) - 1u) << kAt) * 0x01010101u);
}

// Operand register r of step `step` with the codes at the top of their bytes.
template <int kBits>
BITGRAD_HD constexpr uint32_t top_codes(const FragmentWords<kBits>& words, int step, int r) {
  const int index = 4 * step + r;
  uint32_t out = 0;
  if constexpr ((kBits & 4) != 0) out |= move_field<4, 4>(words.part4[index / 2], index % 2);
  if constexpr ((kBits & 2) != 0) out |= move_field < 2, (kBits & 4) != 0 ? 2 : 6 > (words.part2[index / 4], index % 4);
  if constexpr ((kBits & 1) != 0) out |= move_field<1, 8 - kBits>(words.part1[index / 8], index % 8);
  return out;
}

// Four signed bytes from four codes at the top of their bytes.
BITGRAD_HD constexpr uint32_t signed_bytes(uint32_t top, const FragmentOperand& rule) {
  return (((top >> rule.down) & rule.mask) * rule.times) ^ rule.flip;
}

}  // namespace bitgrad::cuda::gemm
