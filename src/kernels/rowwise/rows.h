// Shared by the CPU kernels of family rowwise: rows as fp32, and their sums in the order of docs/numerics.md section 8.
#pragma once

#include <algorithm>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/elementwise/floats.h"
#include "kernels/elementwise/loops.h"
#include "kernels/kernel_table.h"
#include "kernels/reduce/loops.h"
#include "kernels/rowwise/loops.h"

namespace bitgrad::kernels::rowwise {

inline constexpr int64_t kChunkOfRow = reduce_loops::kChunk;
inline constexpr int64_t kTaskOfRows = 16384;  // elements per task

inline bool is_fp64(const FloatsIn& x) { return x.dtype == dtypes::fp64; }
inline const float* floats(const FloatsIn& x) { return x.fp32(); }
inline float* floats(const FloatsOut& y) { return y.fp32(); }

// Calls body(begin, end, space) for ranges of rows; `space` has room for `arrays` rows of floats.
template <typename Body>
void for_ranges_of_rows(int64_t rows, int64_t cols, int64_t arrays, Body&& body) {
  const int64_t grain = std::max<int64_t>(1, kTaskOfRows / std::max<int64_t>(1, cols));
  parallel_ranges(rows, grain, [&](int64_t begin, int64_t end) {
    const Workspace space(arrays * cols * static_cast<int64_t>(sizeof(float)));
    body(begin, end, space.as<float>());
  });
}

// Joins the partial results chunk(first, count) of n elements: 2i with 2i+1, level by level; an odd one moves up.
// Stores only the partial results that still wait for their neighbour, at most one per level.
template <typename Value, typename Chunk, typename Join>
Value join_chunks_of_row(int64_t n, Chunk&& chunk, Join&& join) {
  if (n <= kChunkOfRow) return chunk(int64_t{0}, n);
  Value waiting[64];
  int depth = 0;
  int64_t done = 0;
  for (int64_t first = 0; first < n; first += kChunkOfRow) {
    waiting[depth++] = chunk(first, std::min(kChunkOfRow, n - first));
    for (int64_t k = ++done; k % 2 == 0; k /= 2, --depth)
      waiting[depth - 2] = join(waiting[depth - 2], waiting[depth - 1]);
  }
  for (; depth > 1; --depth) waiting[depth - 2] = join(waiting[depth - 2], waiting[depth - 1]);
  return waiting[0];
}

// Applies a rule of family reduce to a row. `t`: the second operand of products; `c`: the center.
inline float reduce_row(ReduceRule rule, const float* x, int64_t n, const float* t = nullptr, float c = 0.0f) {
  constexpr int kProducts = reduce_loops::kRules - 1;
  const auto chunk = reduce_loops::loops().chunk[t != nullptr ? kProducts : static_cast<int>(rule)];
  const auto part = [&](int64_t first, int64_t count) {
    return chunk(count, x + first, t == nullptr ? t : t + first, c);
  };
  if (rule == ReduceRule::kMax)
    return join_chunks_of_row<float>(n, part, [](float a, float v) { return v > a ? v : a; });
  return join_chunks_of_row<float>(n, part, [](float a, float v) { return a + v; });
}

// References in double (fp64.cpp).
void softmax_fp64(const SoftmaxRowsArgs& args);
void softmax_backward_fp64(const SoftmaxRowsBackwardArgs& args);
void norm_fp64(const NormRowsArgs& args);
void norm_backward_fp64(const NormRowsBackwardArgs& args);
void cross_entropy_fp64(const CrossEntropyRowsArgs& args);
void cross_entropy_backward_fp64(const CrossEntropyRowsBackwardArgs& args);

// The class of a row: its target, or 0 with a flag set if the target is out of range. Not called for ignored rows.
int64_t class_of(int32_t target, int64_t cols, uint32_t* flags);

}  // namespace bitgrad::kernels::rowwise
