#include "cuda/kernels/pack/frag64.h"

#include "cuda/device/fragments.h"
#include "cuda/kernels/gemm/operand.h"
#include "dtype/layouts/frag64.h"

namespace bitgrad::cuda {

BITGRAD_GLOBAL void pack_frag64_kernel(Frag64Args args) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t block_words = frag64_layout::block_bytes(args.bits) / 4;
  const int64_t column_blocks = frag64_layout::column_blocks(args.cols);
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < args.words; i += step) {
    const int64_t block = i / block_words;
    int byte = static_cast<int>(i % block_words) * 4, part = 4, position = args.bits;
    for (; part > 0; part /= 2) {
      if ((args.bits & part) == 0) continue;
      position -= part;
      if (byte < frag64_layout::block_bytes(part)) break;
      byte -= static_cast<int>(frag64_layout::block_bytes(part));
    }
    const frag64_layout::WordPlace at = frag64_layout::word_place(part, byte);
    uint32_t word = 0;
    for (int field = 0; field < 8 / part; ++field) {
      const int index = at.word * (8 / part) + field;
      for (int y = 0; y < 4; ++y) {
        const TilePoint p = operand_point(at.thread, index % 4, y);
        const int64_t row = block / column_blocks * frag64_layout::kRows + p.row;
        const int64_t column = block % column_blocks * frag64_layout::kColumns + index / 4 * kStepBytes + p.column;
        if (row >= args.rows || column >= args.cols) continue;
        const uint32_t raw = gemm::raw_code(args.canonical + row * args.stride, column, args.bits);
        word |= ((raw >> position) & ((1u << part) - 1u)) << (8 * y + field * part);
      }
    }
    args.out[i] = word;
  }
}

}  // namespace bitgrad::cuda
