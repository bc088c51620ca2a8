// Products of bench_gemm on a CUDA device.
#pragma once

#include "bench_gemm_options.h"

namespace bitgrad::bench {

// Every usable kernel of the device on the products of `options`, codes -> bf16 with a scale for each row of A and of
// B, random operands, beside the same product of random bf16 values by the row that the device chooses for them
// (cuBLASLt where it was found). Wall time of runs of launches that are waited for at their end; operands are taken in
// turns from more memory than the L2 holds. Also the bandwidth of a copy. Status of the program.
int run_on_device(const Options& options);

}  // namespace bitgrad::bench
