// Family map: one kernel for each functor of src/kernels/map/maps.inc.
#include "kernels/map/map.h"

#include "cuda/device/builtins.h"
#include "cuda/kernels/launch.h"
#include "cuda/kernels/map/map_cuda.h"
#include "kernels/map/all.h"

namespace bitgrad::cuda {

template <typename F>
BITGRAD_GLOBAL void map_kernel(F f, int64_t n) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) f(i);
}

namespace {

// Few calls are long ones (a row, a block of scales): small blocks spread them over the GPU.
template <typename F>
void run_map_kernel(const void* functor, int64_t n, const char* name) {
  const int threads = n >= 32768 ? 256 : (n >= 4096 ? 64 : 32);
  launch(map_kernel<F>, cover(n, name, threads), *static_cast<const F*>(functor), n);
}

struct MapKernel {
  void (*run)(const void* functor, int64_t n, const char* name);
  const char* name;
};
constexpr MapKernel kMaps[] = {
#define BITGRAD_MAP(functor) {run_map_kernel<maps::functor>, "map_" #functor "_cuda"},
#include "kernels/map/maps.inc"
#undef BITGRAD_MAP
    {nullptr, nullptr}};

}  // namespace

void map_cuda(int id, const void* functor, int64_t n) { kMaps[id].run(functor, n, kMaps[id].name); }

}  // namespace bitgrad::cuda
