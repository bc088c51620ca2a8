// Scalar loops of std::fma at the speed of the machine: without -mfma each is a call of libm, which looks at the CPU
// too. The bits are the same, since fma rounds once wherever it is computed.
#pragma once

namespace bitgrad::kernels::gemm_detail {

#if defined(__x86_64__) && defined(__GNUC__)
template <typename Loops>
[[gnu::target("fma")]] void loops_with_fma(const Loops& loops) {
  loops();
}

// loops: a lambda marked BITGRAD_FMA_LOOPS, which is compiled for both kinds of CPU.
template <typename Loops>
void fma_loops(const Loops& loops) {
  if (__builtin_cpu_supports("fma") != 0)
    loops_with_fma(loops);
  else
    loops();
}
#define BITGRAD_FMA_LOOPS __attribute__((always_inline))
#else
template <typename Loops>
void fma_loops(const Loops& loops) {
  loops();
}
#define BITGRAD_FMA_LOOPS
#endif

}  // namespace bitgrad::kernels::gemm_detail
