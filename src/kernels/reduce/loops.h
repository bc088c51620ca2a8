// The loops of family reduce as a table of functions, one table per ISA. All tables give bit-identical results.
#pragma once

#include <cstdint>

#include "kernels/isa_loops.h"
#include "kernels/reduce.h"

namespace bitgrad::kernels::reduce_loops {
inline constexpr int64_t kChunk = 1024;  // elements whose 16 lanes form one partial sum
inline constexpr int64_t kLanes = 16;
inline constexpr int64_t kTaskElements = 32768;  // a multiple of kChunk
inline constexpr int64_t kColumnBlock = 64;      // columns that are reduced together
inline constexpr int kRules = 13;                // rules.inc

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Columns of two matrices whose rows are ld elements apart, and per-column parameters. gamma and beta are used by rule
// clip.
struct NormColumns {
  const void *g, *x;
  bool bf16_g, bf16_x;
  int64_t ld;
  const float *mean, *inv, *gamma, *beta;
  // If not null, g is masked: masked[i] = g[i] * (bit i ? 1 : 0) is used and written. For fp32 where norm_takes_bits is
  // true.
  const uint64_t* bits = nullptr;
  float* masked = nullptr;
};
// Whether the current loops accept bits, for matrices with this many columns.
inline bool norm_takes_bits(int64_t cols) {
  return (cpu_isa() & isa::kAvx512) != 0 && (cols == 16 || cols == 32 || cols == 64);
}

struct ReduceLoops {
  // One chunk of n <= kChunk contiguous elements. t is read by kSumProduct only, c by the rules with a center.
  float (*chunk[kRules])(int64_t n, const float* x, const float* t, float c);
  // One chunk of rows <= kChunk rows, reduced down n <= kColumnBlock columns. out[n].
  void (*columns[kRules])(int64_t rows, int64_t n, const float* x, const float* t, int64_t ld, const float* c,
                          float* out);
  void (*columns_bf16[kRules])(int64_t rows, int64_t n, const uint16_t* x, const float* t, int64_t ld, const float* c,
                               float* out);
  bool (*any_nonfinite)(int64_t n, const float* x);
  // low[j], high[j]: kMin and kMax of the j-th run of n elements, n <= kChunk. Returns whether any element is NaN or
  // Inf.
  bool (*ranges)(int64_t runs, int64_t n, const float* x, float* low, float* high);
  // Like chunk and columns, but for sum g and sum g * ((x - mean) * inv) together. chunk_norm writes both to out[2].
  void (*chunk_norm)(int64_t n, const float* g, const float* x, float mean, float inv, float* out);
  void (*columns_norm)(int64_t rows, int64_t n, const NormColumns& p, float* sum, float* product);
};

// Joins `count` values part[0], part[step], ...: 2i with 2i+1, level by level; an odd one moves up. count >= 1.
template <typename Join>
float join_chunks(Join join, float* part, int64_t count, int64_t step) {
  for (; count > 1; count = (count + 1) / 2) {
    for (int64_t i = 0; i < count / 2; ++i) part[i * step] = join(part[2 * i * step], part[(2 * i + 1) * step]);
    if (count % 2 == 1) part[count / 2 * step] = part[(count - 1) * step];
  }
  return part[0];
}

BITGRAD_ISA_TABLES(ReduceLoops)

}  // namespace bitgrad::kernels::reduce_loops
