// The loops of family reduce as a table of functions, one table per ISA. All tables give the same bits.
#pragma once

#include <cstdint>

#include "bitgrad/kernels/reduce.h"

namespace bitgrad::reduce_loops {

inline constexpr int64_t kChunk = 1024;  // elements whose 16 lanes make one partial sum
inline constexpr int64_t kLanes = 16;
inline constexpr int64_t kColumnBlock = 64;  // columns that are reduced side by side
inline constexpr int kRules = 13;            // rules.inc

struct ReduceLoops {
  // One chunk, n <= kChunk elements in a row. t is read by kSumProduct only, c by the rules with a center.
  float (*chunk[kRules])(int64_t n, const float* x, const float* t, float c);
  // One chunk down the rows, rows <= kChunk, for n <= kColumnBlock columns. out[n].
  void (*columns[kRules])(int64_t rows, int64_t n, const float* x, const float* t, int64_t ld, const float* c,
                          float* out);
  bool (*any_nonfinite)(int64_t n, const float* x);
};

const ReduceLoops& loops_scalar();
const ReduceLoops& loops_avx2();
const ReduceLoops& loops_avx512();

}  // namespace bitgrad::reduce_loops
