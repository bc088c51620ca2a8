// Launch shapes that cover n items. They depend on n alone, so no result depends on the GPU.
#pragma once

#include <cstdint>

#include "cuda/runtime/runtime.h"

namespace bitgrad::cuda {

inline constexpr int64_t kMostBlocks = int64_t{1} << 20;  // beyond this, threads loop over several items

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Blocks of `threads` threads, one thread per item.
inline LaunchShape cover(int64_t items, const char* name, int threads = 256) {
  const int64_t blocks = ceil_div(items, threads);
  LaunchShape shape;
  shape.grid.x = static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
  shape.block.x = static_cast<unsigned>(threads);
  shape.name = name;
  return shape;
}

}  // namespace bitgrad::cuda
