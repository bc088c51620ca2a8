// Family pack on the device: canonical codes of 1 to 7 bits -> layout frag64 (src/dtype/layouts/frag64.h).
#pragma once

#include "cuda/device/builtins.h"
#include "cuda/device/fragments.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/gemm/operand.h"
#include "dtype/layouts/frag64.h"
#include "kernels/pack.h"

namespace bitgrad::cuda {

struct Frag64Args {
  const uint8_t* canonical;
  int64_t stride, rows, cols;
  int32_t bits;
  int64_t words;  // 32-bit words, in all blocks
  uint32_t* out;
};

// One thread per word of the layout.
BITGRAD_GLOBAL void pack_frag64_kernel(Frag64Args args);

// Computes a word of layout frag64 from canonical codes (src/dtype/layouts/frag64.h).

// A part of the code width: `bits` bits of each code, starting at bit `position`.
struct Frag64Part {
  int bits, position;
};

// Word at.word of thread at.thread, in a part of the block that starts at (row, column).
BITGRAD_DEVICE inline uint32_t frag64_word(const Frag64Args& args, int64_t row, int64_t column, Frag64Part part,
                                           frag64_layout::WordPlace at) {
  uint32_t word = 0;
  for (int field = 0; field < 8 / part.bits; ++field) {
    const int index = at.word * (8 / part.bits) + field;
    for (int y = 0; y < 4; ++y) {
      const TilePoint p = operand_point(at.thread, index % 4, y);
      const int64_t r = row + p.row, c = column + index / 4 * kStepBytes + p.column;
      if (r >= args.rows || c >= args.cols) continue;
      const uint32_t raw = gemm::raw_code(args.canonical + r * args.stride, c, args.bits);
      word |= ((raw >> part.position) & ((1u << part.bits) - 1u)) << (8 * y + field * part.bits);
    }
  }
  return word;
}

}  // namespace bitgrad::cuda
