// The loops of depthwise convolutions and of pools as a table of functions, one table per ISA. All tables give
// bit-identical results.
#pragma once

#include "bitgrad/kernels/kernel.h"
#include "kernels/conv.h"
#include "kernels/isa_loops.h"

namespace bitgrad::kernels::conv {

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

// sums[t][c] = fma chain, starting at sums[t][c], over i < count of gy[i * gy_step + c] * x[t][i * step + c].
template <typename T>
struct PanelCall {
  int64_t count, lanes, terms, step;
  const T* const* x;
  T* const* sums;
  const T* gy;
  int64_t gy_step;
};

// Which of `lanes` bytes equal `tap`: bit i % 64 of word i / 64 of mask. Bits past the last lane are undefined.
struct MatchesCall {
  int64_t lanes;
  const uint8_t* at;
  int tap;
  uint64_t* mask;
};

// to[t][c] = (adds ? to[t][c] : +0) + (bit c of mask t ? gy[c] : +0) for t < terms, c < lanes. Masks are `words` words
// apart.
struct SpreadCall {
  int64_t lanes, terms;
  const float* gy;
  const uint64_t* masks;
  int64_t words;
  float* const* to;
  bool adds;
};

struct WindowLoops {
#define BITGRAD_ISA_LOOP(family, order, result, name, parameters) result(*name) parameters;
#include "kernels/conv/kernels.inc"
#undef BITGRAD_ISA_LOOP
};

BITGRAD_ISA_TABLES(WindowLoops)

// References in double.
namespace scalar {
void chain_fp64(const ChainCall<double>& call);
void panel_fp64(const PanelCall<double>& call);
}  // namespace scalar

}  // namespace bitgrad::kernels::conv
