// Registers family windows.
#include "cuda/register.h"

#include "bitgrad/kernels/kernel.h"
#include "cuda/kernels/windows/windows_cuda.h"

namespace bitgrad::cuda {

void register_windows() {
  KernelTable& table = cuda_kernel_table();
#define BITGRAD_CUDA_KERNEL(name) table.name = name##_cuda;
#include "cuda/kernels/windows/kernels.inc"
#undef BITGRAD_CUDA_KERNEL
  static constexpr KernelInfo kInfos[] = {
#define BITGRAD_CUDA_KERNEL(name) {"windows", #name "_cuda", isa::kAnyCuda, SumOrder::kExact, false, DeviceKind::kCuda},
#include "cuda/kernels/windows/kernels.inc"
#undef BITGRAD_CUDA_KERNEL
  };
  add_kernel_infos(kInfos);
}

}  // namespace bitgrad::cuda
