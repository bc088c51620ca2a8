// Asynchronous copies into shared memory. What they mean: cuda/device/tma.h. A copy is done at once or put off until
// somebody waits at its barrier, as the seed draws, so that a stage that is written too early, or read without waiting,
// shows.
#pragma once

#include <cstdint>

namespace bitgrad::cuda {
struct TensorMap;
}

namespace bitgrad::cuda::emulation {

// blocks: mask of blocks of the cluster; 0: the caller's own.
void tma_load(void* to, const TensorMap* map, uint64_t* barrier, int column, int row, uint16_t blocks);
void bulk_load(void* to, const void* from, uint32_t bytes, uint64_t* barrier);
// Does the copies that were put off and count at this barrier.
void deliver_copies(uint64_t* barrier);

}  // namespace bitgrad::cuda::emulation
