// The loops of a family's CPU kernels are compiled once per ISA, as a table of functions each (loops.h of the family).
// All tables give the same bits.
#pragma once

#include "bitgrad/base/cpu.h"

namespace bitgrad::kernels {

// The table for the best ISA that cpu_isa() currently allows.
template <typename Loops>
const Loops& best_loops(const Loops& (*avx512)(), const Loops& (*avx2)(), const Loops& (*scalar)()) {
  const IsaMask granted = cpu_isa();
  if (granted & isa::kAvx512) return avx512();
  return granted & isa::kAvx2 ? avx2() : scalar();
}

}  // namespace bitgrad::kernels
