#pragma once

#include <cstdint>

namespace bitgrad::cuda {

// DeviceKernels::map: launches the kernel of functor `id` (detail::MapId); the functor is copied.
void map_cuda(int id, const void* functor, int64_t n);

}  // namespace bitgrad::cuda
