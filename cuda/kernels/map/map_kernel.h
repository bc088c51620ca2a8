// Family map: the kernel of a functor, and its registration for CUDA. CMake makes a <layer>.cu of
// layer.cu.in for each layer that has functors; it includes all of src/<layer>/map/.
#pragma once

#include "bitgrad/kernels/kernel.h"
#include "cuda/device/builtins.h"
#include "cuda/kernels/launch.h"
#include "kernels/map/map.h"

namespace bitgrad::cuda {

template <typename F>
BITGRAD_GLOBAL void map_kernel(F f, int64_t n) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) f(i);
}

// If n is small, each call may be long (a row, a block of scales), so small blocks spread the calls over the GPU.
template <typename F>
void launch_each(const F& f, int64_t n, const char* name) {
  if (n <= 0) return;
  const int threads = n >= 32768 ? 256 : (n >= 4096 ? 64 : 32);
  launch(map_kernel<F>, cover(n, name, threads), f, n);
}

template <typename F>
struct MapKernel {
  static inline const char* name = nullptr;  // in the kernel list
  static void run(const F& f, int64_t n) { launch_each(f, n, name); }
};

// Called while the backend registers (register.cpp). `name` must be a literal.
template <typename F>
void add_map_kernel(const char* name) {
  MapKernel<F>::name = name;
  bitgrad::detail::MapLine<F>::runs[static_cast<size_t>(DeviceKind::kCuda)] = MapKernel<F>::run;
  add_map_info({"map", name, DeviceKind::kCuda, isa::kAnyCuda, SumOrder::kExact});
}

}  // namespace bitgrad::cuda
