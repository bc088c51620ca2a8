// Emulated mbarriers, stored in their eight bytes of shared memory. Semantics: cuda/device/barrier.h.
#pragma once

#include <cstdint>

#include "emulation/cuda/emulation.h"

namespace bitgrad::cuda::emulation {

// Offset of p in the dynamic shared memory of the caller's block; ends the launch with an error if p is elsewhere.
uint32_t shared_address(const void* p);

void barrier_init(uint64_t* barrier, uint32_t arrivals);
void barrier_arrive_expect(uint64_t* barrier, uint32_t bytes);
void barrier_arrive_at(uint64_t* barrier, uint32_t rank);
void barrier_wait(uint64_t* barrier, uint32_t parity);

// `bytes` of a copy have arrived at a barrier, which may belong to another block.
void barrier_complete(uint64_t* barrier, uint32_t bytes);

}  // namespace bitgrad::cuda::emulation
