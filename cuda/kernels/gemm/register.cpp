#include "cuda/kernels/gemm/args.h"
#include "cuda/kernels/gemm/library/cublaslt.h"
#include "cuda/runtime/backend.h"
#include "kernels/gemm/common/batch.h"

namespace bitgrad::cuda {
namespace {

constexpr GemmKernel kKernels[] = {
#define BITGRAD_CUDA_GEMM_KERNEL(name, needs, order, a_layout, b_layout) \
  {{{"gemm", #name, DeviceKind::kCuda, needs, SumOrder::order},          \
    &gemm_impl::name##_supports,                                         \
    &gemm_impl::name##_cost,                                             \
    &gemm_detail::batched<&gemm_impl::name>},                            \
   layouts::a_layout,                                                    \
   layouts::b_layout},
#include "cuda/kernels/gemm/kernels.inc"
#undef BITGRAD_CUDA_GEMM_KERNEL
};

}  // namespace

std::span<const GemmKernel> cuda_gemm_kernels() { return kKernels; }
void register_gemm() {
  gemm_kernels().add(kKernels);
  add_library(&gemm::describe_cublaslt);
#if !defined(BITGRAD_CUDA_EMULATED)  // the library does not know emulated devices
  add_capability(isa::kCublasLt);
#endif
}

}  // namespace bitgrad::cuda
