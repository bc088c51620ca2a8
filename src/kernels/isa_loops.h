// The loops of a family's CPU kernels are compiled once per ISA, as a table of functions each (loops.h of the family).
// All tables give the same bits. loops.inc of the family is included inside a namespace and, for AVX2 and AVX-512,
// inside a target region, by isa_loops.inc.in, of which CMake makes the source of a family. Every function there
// is static and calls nothing from std, so no code for a newer ISA leaves the file under a shared name.
// BITGRAD_LOOPS_ISA is 0, 2 or 512, since __AVX2__ and similar macros are not visible in a target region when the text
// is preprocessed separately (ccache).
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

// Declares the tables of a family, in its namespace.
#define BITGRAD_ISA_TABLES(Loops) \
  const Loops& loops_scalar();    \
  const Loops& loops_avx2();      \
  const Loops& loops_avx512();    \
  inline const Loops& loops() { return best_loops(loops_avx512, loops_avx2, loops_scalar); }
