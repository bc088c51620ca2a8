#include "cuda/kernels/gemm/wgmma/kernels.h"

#include <algorithm>

#include "bitgrad/base/error.h"

namespace bitgrad::cuda::gemm {
namespace {

constexpr NamedWgmmaKernel kWgmmaKernels[] = {
#define BITGRAD_WGMMA_SS(kernel, type, columns, cluster, rows, store) \
  {&kernel, #kernel, WgmmaType::type, 8, {columns, cluster, rows}, WgmmaStore::store},
#include "cuda/kernels/gemm/wgmma/ss_kernels.inc"
#undef BITGRAD_WGMMA_SS
#define BITGRAD_WGMMA_RS(kernel, type, bits, columns, cluster, rows, store) \
  {&kernel, #kernel, WgmmaType::type, bits, {columns, cluster, rows}, WgmmaStore::store},
#include "cuda/kernels/gemm/wgmma/rs_kernels.inc"
#undef BITGRAD_WGMMA_RS
};

}  // namespace

const NamedWgmmaKernel& wgmma_kernel(WgmmaType type, int bits, TileForm form, WgmmaStore store) {
  const auto* const found = std::find_if(std::begin(kWgmmaKernels), std::end(kWgmmaKernels), [&](const auto& k) {
    return k.type == type && k.bits == bits && k.form.columns == form.columns && k.form.rows == form.rows &&
           k.store == store;
  });
  ensure(found != std::end(kWgmmaKernels), "gemm", "no wgmma kernel of type ", static_cast<int>(type), ", ", bits,
         " bits, a tile of ", form.rows, " x ", form.columns, " and store ", static_cast<int>(store));
  return *found;
}

}  // namespace bitgrad::cuda::gemm
