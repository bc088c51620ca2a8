#include "cuda/kernels/pack/frag64.h"

#include <algorithm>

#include "cuda/runtime/runtime.h"

namespace bitgrad::cuda {

void pack_frag64_cuda(const PackArgs& args) {
  constexpr int64_t kThreads = 256, kMostBlocks = int64_t{1} << 20;
  const int64_t words = layouts::frag64.info().bytes(args.dtype, args.rows, args.cols) / 4;
  LaunchShape shape;
  shape.grid.x = static_cast<unsigned>(std::min(kMostBlocks, (words + kThreads - 1) / kThreads));
  shape.block.x = kThreads;
  shape.name = "pack_frag64_cuda";
  launch(&pack_frag64_kernel, shape,
         Frag64Args{static_cast<const uint8_t*>(args.canonical), args.stride, args.rows, args.cols, args.dtype.bits(),
                    words, static_cast<uint32_t*>(args.out)});
}

}  // namespace bitgrad::cuda
