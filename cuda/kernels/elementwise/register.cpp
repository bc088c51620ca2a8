// Registers family elementwise.
#include "cuda/register.h"

#include "bitgrad/kernels/kernel.h"
#include "cuda/kernels/elementwise/elementwise_cuda.h"

namespace bitgrad::cuda {

void register_elementwise() {
  KernelTable& table = cuda_kernel_table();
#define BITGRAD_CUDA_KERNEL(name) table.name = name##_cuda;
#include "cuda/kernels/elementwise/kernels.inc"
#undef BITGRAD_CUDA_KERNEL
  static constexpr KernelInfo kInfos[] = {
#define BITGRAD_CUDA_KERNEL(name) \
  {"elementwise", #name "_cuda", isa::kAnyCuda, SumOrder::kExact, false, DeviceKind::kCuda},
#include "cuda/kernels/elementwise/kernels.inc"
#undef BITGRAD_CUDA_KERNEL
  };
  add_kernel_infos(kInfos);
}

}  // namespace bitgrad::cuda
