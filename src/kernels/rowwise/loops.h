// The loops of family rowwise as a table of functions, one table per ISA. All tables give bit-identical results.
#pragma once

#include "kernels/isa_loops.h"
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
#define BITGRAD_ISA_LOOP(family, order, result, name, parameters) result(*name) parameters;
#include "kernels/rowwise/kernels.inc"
#undef BITGRAD_ISA_LOOP
};

BITGRAD_ISA_TABLES(RowwiseLoops)

}  // namespace bitgrad::kernels::rowwise
