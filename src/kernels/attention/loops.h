// The loops of family attention as a table of functions, one table per ISA. All tables give bit-identical results.
#pragma once

#include <cstdint>

#include "kernels/isa_loops.h"

namespace bitgrad::kernels::attention_loops {
inline constexpr int64_t kLanes = 16;  // rows of tiles are padded to a multiple of this many floats

// y[r][j] = start + sum over i, ascending, of x[r * x_row + i * x_step] * t[i * ldt + j], where start is 0, y, or y *
// factor[r]. cols is a multiple of kLanes. On the diagonal of a causal product the limits form a staircase: row r sums
// only i with max(0, r - begins) <= i < min(inner, ends + r), and only its columns j < col_ends + r are needed (the
// others are either computed or left unchanged).
struct MultiplyAdd {
  static constexpr int64_t kNoStair = int64_t{1} << 62;
  enum class Start : uint8_t { kZero, kKeep, kTimes };
  int64_t rows = 0, cols = 0, inner = 0;
  const float* x = nullptr;
  int64_t x_row = 0, x_step = 1;
  const float* t = nullptr;
  const uint16_t* t_bf16 = nullptr;  // in place of t, if it is not null
  int64_t ldt = 0;
  Start start = Start::kZero;
  const float* factor = nullptr;
  float* y = nullptr;
  int64_t ldy = 0;
  int64_t begins = kNoStair, ends = kNoStair, col_ends = kNoStair;
};

// One row's block of 64 scores, of which those in [begin, count) are visible.
struct OnlineRow {
  float* scores = nullptr;  // in: sums of q k; out: exp(score * scale - top), 0 where not visible
  int64_t begin = 0, count = 0;
  float scale = 1;
  float top = 0, sum = 0;  // in: over the previous blocks; out: including this one
  float factor = 0;        // exp(old top - new top)
};

// One row's block in backward: scores in, probabilities and their gradients out.
struct GradientRow {
  float* scores = nullptr;  // in: sums of q k; out: p = exp(score * scale - log_sum), 0 where not visible
  float* slopes = nullptr;  // in: sums of gy v; out: (p * (slope - dot)) * scale
  int64_t begin = 0, count = 0;
  float scale = 1, log_sum = 0, dot = 0;
};

struct AttentionLoops {
#define BITGRAD_ISA_LOOP(family, order, result, name, parameters) result(*name) parameters;
#include "kernels/attention/kernels.inc"
#undef BITGRAD_ISA_LOOP
};

BITGRAD_ISA_TABLES(AttentionLoops)

}  // namespace bitgrad::kernels::attention_loops
