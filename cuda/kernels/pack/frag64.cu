#include "cuda/kernels/pack/frag64.h"

#include "cuda/kernels/launch.h"

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
    args.out[i] =
        frag64_word(args, block / column_blocks * frag64_layout::kRows, block % column_blocks * frag64_layout::kColumns,
                    {part, position}, frag64_layout::word_place(part, byte));
  }
}

void pack_frag64_cuda(const PackArgs& args) {
  const int64_t words = layouts::frag64.info().bytes(args.dtype, args.rows, args.cols) / 4;
  launch(&pack_frag64_kernel, cover(words, "pack_frag64_cuda"),
         Frag64Args{static_cast<const uint8_t*>(args.canonical), args.stride, args.rows, args.cols, args.dtype.bits(),
                    words, static_cast<uint32_t*>(args.out)});
}

}  // namespace bitgrad::cuda
