// Asynchronous copies into shared memory. What they mean: cuda/device/tma.h. A copy is done at once or put off until
// somebody waits at its barrier, as the seed draws, so that a stage that is written too early, or read without waiting,
// shows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitgrad::cuda {
struct TensorMap;
}

namespace bitgrad::cuda::emulation {

// blocks: mask of blocks of the cluster; 0: the caller's own.
void tma_load(void* to, const TensorMap* map, uint64_t* barrier, int column, int row, uint16_t blocks);
void bulk_load(void* to, const void* from, uint32_t bytes, uint64_t* barrier);
// From shared memory; groups of the calling thread. A copy reads at once or when its group is waited for, as the seed
// draws, so that a box that is written again too early shows.
void tma_store(const TensorMap* map, const void* from, int column, int row);
void tma_store_commit();
void tma_store_wait(size_t pending);
// At the end of a block: stores that nobody waited for would read shared memory that is no longer its own.
bool stores_are_done();
// Does the copies that were put off and count at this barrier.
void deliver_copies(uint64_t* barrier);

}  // namespace bitgrad::cuda::emulation
