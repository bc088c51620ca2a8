// The loops of family reduce as a table of functions, one table per ISA. All tables give the same bits.
#pragma once

#include <cstdint>

#include "bitgrad/kernels/reduce.h"

namespace bitgrad::kernels::reduce_loops {

inline constexpr int64_t kChunk = 1024;  // elements whose 16 lanes make one partial sum
inline constexpr int64_t kLanes = 16;
inline constexpr int64_t kTaskElements = 32768;  // a multiple of kChunk
inline constexpr int64_t kColumnBlock = 64;      // columns that are reduced side by side
inline constexpr int kRules = 13;                // rules.inc

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Columns of two matrices whose rows are ld numbers apart, and numbers for each column; gamma and beta: rule clip.
struct NormColumns {
  const float *g, *x;
  int64_t ld;
  const float *mean, *inv, *gamma, *beta;
  // Not null: g counts as masked[i] = g[i] * (bit i ? 1 : 0), which is written. Where norm_takes_bits says so.
  const uint64_t* bits = nullptr;
  float* masked = nullptr;
};
// Whether the loops in use take bits, of matrices of so many columns.
inline bool norm_takes_bits(int64_t cols) {
  return (cpu_isa() & isa::kAvx512) != 0 && (cols == 16 || cols == 32 || cols == 64);
}

struct ReduceLoops {
  // One chunk, n <= kChunk elements in a row. t is read by kSumProduct only, c by the rules with a center.
  float (*chunk[kRules])(int64_t n, const float* x, const float* t, float c);
  // One chunk down the rows, rows <= kChunk, for n <= kColumnBlock columns. out[n].
  void (*columns[kRules])(int64_t rows, int64_t n, const float* x, const float* t, int64_t ld, const float* c,
                          float* out);
  bool (*any_nonfinite)(int64_t n, const float* x);
  // low[j], high[j]: kMin and kMax of the j-th run of n numbers, n <= kChunk. Whether one of all is NaN or Inf.
  bool (*ranges)(int64_t runs, int64_t n, const float* x, float* low, float* high);
  // As chunk and columns, for sum g and sum g * ((x - mean) * inv) side by side. chunk_norm: two numbers.
  void (*chunk_norm)(int64_t n, const float* g, const float* x, float mean, float inv, float* out);
  void (*columns_norm)(int64_t rows, int64_t n, const NormColumns& p, float* sum, float* product);
};

// Joins part[0], part[step], .. (count of them): 2i with 2i+1 level by level, an odd one moves up. count >= 1.
template <typename Join>
float join_chunks(Join join, float* part, int64_t count, int64_t step) {
  for (; count > 1; count = (count + 1) / 2) {
    for (int64_t i = 0; i < count / 2; ++i) part[i * step] = join(part[2 * i * step], part[(2 * i + 1) * step]);
    if (count % 2 == 1) part[count / 2 * step] = part[(count - 1) * step];
  }
  return part[0];
}

const ReduceLoops& loops_scalar();
const ReduceLoops& loops_avx2();
const ReduceLoops& loops_avx512();

// The table of the best ISA that cpu_isa() grants now.
inline const ReduceLoops& loops() {
  const IsaMask granted = cpu_isa();
  if (granted & isa::kAvx512) return loops_avx512();
  return granted & isa::kAvx2 ? loops_avx2() : loops_scalar();
}

}  // namespace bitgrad::kernels::reduce_loops
