// The loops of family rowwise as a table of functions, one table per ISA. All tables give bit-identical results.
#pragma once

#include "bitgrad/base/cpu.h"
#include "kernels/rowwise.h"

namespace bitgrad::kernels::rowwise {

inline constexpr int64_t kRowChunk = 1024;  // rows whose 16 lanes form one partial sum of a column
inline constexpr int64_t kSumLanes = 16;
inline constexpr int64_t kColumns = 64;  // columns that are summed together

// Parameters that all elements of a row share.
struct NormRow {
  float mean = 0, inv = 0;
  float mean_h = 0, mean_h_xhat = 0;  // for the backward
};

struct NormColumns {
  int64_t rows, ld;
  const void *gy, *x;
  bool bf16_gy, bf16_x;
  const float *mean, *inv;  // one value per row; a null mean stands for 0
};

struct RowwiseLoops {
#define BITGRAD_ROWWISE_LOOP(name, result, parameters) result(*name) parameters;
#include "kernels/rowwise/kernels.inc"
#undef BITGRAD_ROWWISE_LOOP
};

const RowwiseLoops& loops_scalar();
const RowwiseLoops& loops_avx2();
const RowwiseLoops& loops_avx512();

// The table for the best ISA that cpu_isa() currently allows.
inline const RowwiseLoops& loops() {
  const IsaMask granted = cpu_isa();
  if (granted & isa::kAvx512) return loops_avx512();
  return granted & isa::kAvx2 ? loops_avx2() : loops_scalar();
}

}  // namespace bitgrad::kernels::rowwise
