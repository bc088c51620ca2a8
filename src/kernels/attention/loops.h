// The loops of family attention as a table of functions, one table per ISA. All tables give the same bits.
#pragma once

#include "bitgrad/kernels/kernel.h"

namespace bitgrad::kernels::attention_loops {

inline constexpr int64_t kLanes = 16;  // rows of tiles are multiples of as many floats

// y[r][j] = start + the sum over i, ascending, of x[r * x_row + i * x_step] * t[i * ldt + j]; start: 0, y, or y times
// factor[r]. cols is a multiple of kLanes. The diagonal of a causal product is a stair: there row r sums only i of
// max(0, r - begins) <= i < min(inner, ends + r), and only its columns j < col_ends + r are wanted (others are made or
// stay as they are).
struct MultiplyAdd {
  static constexpr int64_t kNoStair = int64_t{1} << 62;
  enum class Start : uint8_t { kZero, kKeep, kTimes };
  int64_t rows = 0, cols = 0, inner = 0;
  const float* x = nullptr;
  int64_t x_row = 0, x_step = 1;
  const float* t = nullptr;
  int64_t ldt = 0;
  Start start = Start::kZero;
  const float* factor = nullptr;
  float* y = nullptr;
  int64_t ldy = 0;
  int64_t begins = kNoStair, ends = kNoStair, col_ends = kNoStair;
};

// A row's block of scores, 64 floats, of which those from `begin` to `count` are seen.
struct OnlineRow {
  float* scores = nullptr;  // in: sums of q k; out: exp(score * scale - top), 0 elsewhere
  int64_t begin = 0, count = 0;
  float scale = 1;
  float top = 0, sum = 0;  // of the blocks so far; then with this one
  float factor = 0;        // exp(old top - new top)
};

// A row's block in backward: scores in, probabilities and their gradients out.
struct GradientRow {
  float* scores = nullptr;  // in: sums of q k; out: p = exp(score * scale - log_sum), 0 elsewhere
  float* slopes = nullptr;  // in: sums of gy v; out: (p * (slope - dot)) * scale
  int64_t begin = 0, count = 0;
  float scale = 1, log_sum = 0, dot = 0;
};

struct AttentionLoops {
#define BITGRAD_ATTENTION_LOOP(name, parameters) void(*name) parameters;
#include "kernels/attention/kernels.inc"
#undef BITGRAD_ATTENTION_LOOP
};

const AttentionLoops& loops_scalar();
const AttentionLoops& loops_avx2();
const AttentionLoops& loops_avx512();

// The table of the best ISA that cpu_isa() grants now.
inline const AttentionLoops& loops() {
  const IsaMask granted = cpu_isa();
  if (granted & isa::kAvx512) return loops_avx512();
  return granted & isa::kAvx2 ? loops_avx2() : loops_scalar();
}

}  // namespace bitgrad::kernels::attention_loops
