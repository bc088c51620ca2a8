// The loops of depthwise convolutions as a table of functions, one table per ISA. All tables give the same bits.
#pragma once

#include "bitgrad/kernels/depthwise.h"
#include "bitgrad/kernels/kernel.h"

namespace bitgrad::kernels::windows {

// out[i * out_step + c] = (fma chain from +0 over t of x[t][i * step + c] * w[t][c]) (* scale[c]) (+ bias[c]) for i <
// count, c < lanes.
template <typename T>
struct ChainCall {
  int64_t count, lanes, terms, step;
  const T *const *x, *const *w;
  const float *scale, *bias;
  T* out;
  int64_t out_step;
};

// sums[t][c] = fma chain from sums[t][c] over i < count of gy[i * gy_step + c] * x[t][i * step + c].
template <typename T>
struct PanelCall {
  int64_t count, lanes, terms, step;
  const T* const* x;
  T* const* sums;
  const T* gy;
  int64_t gy_step;
};

struct DepthwiseLoops {
#define BITGRAD_DEPTHWISE_LOOP(name, call) void (*name)(const call<float>&);
#include "kernels/windows/kernels.inc"
#undef BITGRAD_DEPTHWISE_LOOP
};

const DepthwiseLoops& loops_scalar();
const DepthwiseLoops& loops_avx2();
const DepthwiseLoops& loops_avx512();

// The table of the best ISA that cpu_isa() grants now.
inline const DepthwiseLoops& loops() {
  const IsaMask granted = cpu_isa();
  if (granted & isa::kAvx512) return loops_avx512();
  return granted & isa::kAvx2 ? loops_avx2() : loops_scalar();
}

// Lines of `bitgrad kernels`.
void append_depthwise_kernels(std::vector<KernelInfo>& out);

// The doubles of references (scalar.cpp).
void chain_fp64(const ChainCall<double>& call);
void panel_fp64(const PanelCall<double>& call);

}  // namespace bitgrad::kernels::windows
