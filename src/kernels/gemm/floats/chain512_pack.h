// Expands operands into the strips that the micro-kernels of chain512 read.
#pragma once

#include <cstdint>

#include "kernels/gemm/floats/chain512.h"

namespace bitgrad::kernels::gemm_detail {

// A block of an operand: free indices [f0, f0 + nf), contracted indices [k0, k0 + kc), kc <= 512.
struct StripBlock {
  const GemmOperand& x;
  bool bare;             // use bare codes instead of values
  const float* k_scale;  // [kc] factors that multiply the values of each k; nullptr: none
  int64_t f0, nf, k0, kc;
};

// out[(f / width) * kc * width + k * width + f % width] for f in [0, nf), zero-padded to a multiple of width. width:
// one of the list in chain512_pack.cpp. transpose16: a faster routine for multiples of 16.
void pack_strips(const StripBlock& block, int64_t width, float* out, Transpose transpose16 = nullptr);
// Estimated nanoseconds per expanded element.
double pack_ns_per_element(const GemmOperand& x);

}  // namespace bitgrad::kernels::gemm_detail
