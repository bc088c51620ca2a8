// Registers family map: one kernel a functor.
#include "cuda/register.h"

#include "bitgrad/kernels/kernel.h"
#include "cuda/kernels/map/map_cuda.h"

namespace bitgrad::cuda {

void register_map() {
  device_kernel_table().map = map_cuda;
  static constexpr KernelInfo kInfos[] = {
#define BITGRAD_MAP(functor) \
  {"map", "map_" #functor "_cuda", isa::kAnyCuda, SumOrder::kExact, false, DeviceKind::kCuda},
#include "kernels/map/maps.inc"
#undef BITGRAD_MAP
  };
  register_kernels(kInfos);
}

}  // namespace bitgrad::cuda
