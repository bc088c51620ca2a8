// The launches of family rowwise: name_cuda(...) for each line of kernels.inc, with the contract and parameters of line
// `name` in kernel_table.inc.
#pragma once

#include <type_traits>

#include "cuda/kernels/contracts.h"

namespace bitgrad::cuda {

#define BITGRAD_CUDA_KERNEL(name) std::remove_pointer_t<decltype(KernelTable::name)> name##_cuda;
#include "cuda/kernels/rowwise/kernels.inc"
#undef BITGRAD_CUDA_KERNEL

// fp64 is supported on the CPU only.
inline void refuse_fp64(const FloatsIn& x, std::string_view name) {
  if (x.dtype == dtypes::fp64) bitgrad::detail::fail_fp64_on_device(name);
}

}  // namespace bitgrad::cuda
