// Registers family rowwise.
#include "cuda/register.h"

#include "bitgrad/kernels/kernel.h"
#include "cuda/kernels/rowwise/rowwise_cuda.h"

namespace bitgrad::cuda {

void register_rowwise() {
  KernelTable& table = cuda_kernel_table();
#define BITGRAD_CUDA_KERNEL(name) table.name = name##_cuda;
#include "cuda/kernels/rowwise/kernels.inc"
#undef BITGRAD_CUDA_KERNEL
  static constexpr KernelInfo kInfos[] = {
#define BITGRAD_CUDA_KERNEL(name) {"rowwise", #name "_cuda", isa::kAnyCuda, SumOrder::kLanes, false, DeviceKind::kCuda},
#include "cuda/kernels/rowwise/kernels.inc"
#undef BITGRAD_CUDA_KERNEL
  };
  add_kernel_infos(kInfos);
}

}  // namespace bitgrad::cuda
