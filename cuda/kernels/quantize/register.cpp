// Registers family quantize: its kernel list and its entries in the KernelTable.
#include "cuda/register.h"
#include "bitgrad/kernels/kernel.h"
#include "cuda/kernels/quantize/quantize_cuda.h"

namespace bitgrad::cuda {
namespace {

bool sign_supports(const QuantizeArgs& args) {
  return args.rule == CodeRule::kSign && args.dtype.kind() == DTypeKind::kSign && args.dtype.bits() == 1;
}
bool any_supports(const QuantizeArgs&) { return true; }
double sign_cost(const QuantizeArgs&) { return 0; }
double any_cost(const QuantizeArgs&) { return 1; }

}  // namespace

void register_quantize() {
  static constexpr Kernel<QuantizeArgs> kKernels[] = {{"quantize_sign_cuda", DeviceKind::kCuda, isa::kAnyCuda,
                                                       SumOrder::kExact, sign_supports, sign_cost, quantize_sign_cuda},
                                                      {"quantize_any_cuda", DeviceKind::kCuda, isa::kAnyCuda,
                                                       SumOrder::kExact, any_supports, any_cost, quantize_any_cuda}};
  register_quantize_kernels(kKernels);
  KernelTable& table = cuda_kernel_table();
#define BITGRAD_CUDA_KERNEL(name) table.name = name##_cuda;
#include "cuda/kernels/quantize/kernels.inc"
#undef BITGRAD_CUDA_KERNEL
  static constexpr KernelInfo kInfos[] = {
#define BITGRAD_CUDA_KERNEL(name) \
  {"quantize", #name "_cuda", isa::kAnyCuda, SumOrder::kExact, false, DeviceKind::kCuda},
#include "cuda/kernels/quantize/kernels.inc"
#undef BITGRAD_CUDA_KERNEL
  };
  add_kernel_infos(kInfos);
}

}  // namespace bitgrad::cuda
