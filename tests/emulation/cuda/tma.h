// Asynchronous copies into shared memory. Semantics: cuda/device/tma.h. A copy takes place at once or is deferred until
// a thread waits at its barrier, depending on the seed, which exposes a stage that is written too early or read without
// waiting.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitgrad::cuda {
struct TensorMap;
}

namespace bitgrad::cuda::emulation {

// blocks: mask of blocks in the cluster; 0: the caller's own block.
void tma_load(void* to, const TensorMap* map, uint64_t* barrier, int column, int row, uint16_t blocks);
void bulk_load(void* to, const void* from, uint32_t bytes, uint64_t* barrier);
// Copies from shared memory, in groups of the calling thread. A copy reads its source at once or when its group is
// waited for, depending on the seed, which exposes a box that is overwritten too early.
void tma_store(const TensorMap* map, const void* from, int column, int row);
void tma_store_commit();
void tma_store_wait(size_t pending);
// At the end of a block: stores that nobody waited for would read shared memory that no longer belongs to the block.
bool stores_are_done();
// Performs the deferred copies that count at this barrier.
void deliver_copies(uint64_t* barrier);

}  // namespace bitgrad::cuda::emulation
