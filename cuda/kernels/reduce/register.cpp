// Registers family reduce: its one listed kernel and its entries in the KernelTable.
#include "cuda/register.h"

#include "bitgrad/kernels/kernel.h"
#include "cuda/kernels/reduce/reduce_cuda.h"

namespace bitgrad::cuda {
namespace {

bool supports_every(const ReduceArgs&) { return true; }
double free_of_rivals(const ReduceArgs&) { return 0; }

}  // namespace

void register_reduce() {
  static constexpr Kernel<ReduceArgs> kKernels[] = {{"reduce_lanes_cuda", DeviceKind::kCuda, isa::kAnyCuda,
                                                     SumOrder::kLanes, supports_every, free_of_rivals,
                                                     reduce_lanes_cuda}};
  register_reduce_kernels(kKernels);
  KernelTable& table = cuda_kernel_table();
#define BITGRAD_CUDA_KERNEL(name) table.name = name##_cuda;
#include "cuda/kernels/reduce/kernels.inc"
#undef BITGRAD_CUDA_KERNEL
  static constexpr KernelInfo kInfos[] = {
#define BITGRAD_CUDA_KERNEL(name) {"reduce", #name "_cuda", isa::kAnyCuda, SumOrder::kLanes, false, DeviceKind::kCuda},
#include "cuda/kernels/reduce/kernels.inc"
#undef BITGRAD_CUDA_KERNEL
  };
  add_kernel_infos(kInfos);
}

}  // namespace bitgrad::cuda
