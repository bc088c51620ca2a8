// Warpgroup products. Semantics: cuda/device/wgmma.h. They are computed at the wait that needs them; the operands are
// read at the commit or then, depending on the seed, which exposes a stage or a register that is overwritten too early.
#pragma once

#include <cstdint>

namespace bitgrad::cuda::emulation {

// type: WgmmaType. d: n / 2 sums of the thread. a_registers: nullptr if A comes from shared memory.
void wgmma(int type, int n, int32_t* d, uint64_t a, const uint32_t* a_registers, uint64_t b, bool accumulate);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(int pending);

}  // namespace bitgrad::cuda::emulation
