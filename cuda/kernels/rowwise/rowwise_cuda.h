// What the launches of family rowwise share.
#pragma once

#include "cuda/kernels/contracts.h"

namespace bitgrad::cuda {

// fp64 is supported on the CPU only.
inline void refuse_fp64(const FloatsIn& x, std::string_view name) {
  if (x.dtype == dtypes::fp64) bitgrad::detail::fail_fp64_on_device(name);
}

}  // namespace bitgrad::cuda
