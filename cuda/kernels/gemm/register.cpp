#include "cuda/kernels/gemm/register.h"

#include "cuda/kernels/gemm/cublaslt.h"
#include "cuda/kernels/gemm/rows.h"
#include "cuda/runtime/backend.h"
#include "kernels/gemm/common/batch.h"

namespace bitgrad::cuda {
namespace {

constexpr GemmRow kRows[] = {
#define BITGRAD_CUDA_GEMM_ROW(row, needs, order, a_layout, b_layout)                                     \
  {{#row, DeviceKind::kCuda, needs, SumOrder::order, &gemm_rows::row##_supports, &gemm_rows::row##_cost, \
    &gemm_detail::batched<&gemm_rows::row>},                                                             \
   layouts::a_layout,                                                                                    \
   layouts::b_layout},
#include "cuda/kernels/gemm/kernels.inc"
#undef BITGRAD_CUDA_GEMM_ROW
};

}  // namespace

std::span<const GemmRow> cuda_gemm_rows() { return kRows; }
void register_gemm() {
  register_gemm_rows(kRows);
  add_library(&gemm::describe_cublaslt);
#if !defined(BITGRAD_CUDA_EMULATED)  // the library knows nothing of emulated devices
  if (gemm::cublaslt() != nullptr) add_capability(isa::kCublasLt);
#endif
}

}  // namespace bitgrad::cuda
