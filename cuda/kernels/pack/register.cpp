// Registers family pack and the transposition used by tensors. Layouts that only CPU products read have no kernel here.
#include "cuda/register.h"
#include "cuda/kernels/pack/frag64.h"
#include "cuda/kernels/pack/pack_cuda.h"

namespace bitgrad::cuda {
namespace {

double elements(const PackArgs& args) { return static_cast<double>(args.rows * args.cols); }

#define BITGRAD_CUDA_PACK_KERNEL(name, layout)                                \
  bool name##_supports(const PackArgs& args) {                                \
    return args.to == layouts::layout && args.to.info().supports(args.dtype); \
  }
#include "cuda/kernels/pack/kernels.inc"
#undef BITGRAD_CUDA_PACK_KERNEL

}  // namespace

void register_pack() {
  static constexpr Kernel<PackArgs> kKernels[] = {
#define BITGRAD_CUDA_PACK_KERNEL(name, layout) \
  {#name, DeviceKind::kCuda, isa::kAnyCuda, SumOrder::kExact, name##_supports, elements, name},
#include "cuda/kernels/pack/kernels.inc"
#undef BITGRAD_CUDA_PACK_KERNEL
  };
  register_pack_kernels(kKernels);
  register_device_transpose(transpose_cuda);
}

}  // namespace bitgrad::cuda
