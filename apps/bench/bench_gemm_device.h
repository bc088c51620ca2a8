// Products of bench_gemm on a CUDA device.
#pragma once

#include "bench_gemm_options.h"

namespace bitgrad::bench {

// Measures every usable kernel of the device on the products of `options`: codes -> bf16 with a scale per row of A and
// of B, on random operands. Each is compared with the same product of random bf16 values by the kernel that the device
// selects for it (cuBLASLt if found). Reports wall time of series of launches that are synchronized at their end,
// cycling through operands that exceed the L2 cache, and the bandwidth of a copy. Returns the exit status.
int run_on_device(const Options& options);

}  // namespace bitgrad::bench
