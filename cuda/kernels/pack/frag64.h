// Family pack on the device: canonical codes of 1 to 7 bits -> layout frag64 (src/dtype/layouts/frag64.h).
#pragma once

#include "cuda/device/builtins.h"
#include "cuda/kernels/contracts.h"
#include "kernels/pack.h"

namespace bitgrad::cuda {

struct Frag64Args {
  const uint8_t* canonical;
  int64_t stride, rows, cols;
  int32_t bits;
  int64_t words;  // 32-bit words, in all blocks
  uint32_t* out;
};

// One thread per word of the layout.
BITGRAD_GLOBAL void pack_frag64_kernel(Frag64Args args);
void pack_frag64_cuda(const PackArgs& args);

}  // namespace bitgrad::cuda
