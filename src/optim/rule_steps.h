// What update rules share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "bitgrad/optim/update_rule.h"
#include "kernels/reduce.h"
#include "optim/map/rules.h"

namespace bitgrad::detail {

inline StepRate rate_of(const UpdatePiece& p) { return {p.lr, p.weight_decay, p.live, p.lr_factor, p.base_decay}; }

// w -= (lr * weight_decay) * w;  w -= lr * g.
inline void directed_step(const UpdatePiece& p) {
  run_map(maps::DirectedStep{rate_of(p), std::numeric_limits<float>::infinity(), -1, p.g, p.w}, p.n);
}

// Sums of squares of a dense [rows, cols] matrix on the current device, in the order of docs/numerics.md section 8.
inline void sum_squares_into(kernels::ReduceAxis axis, int64_t rows, int64_t cols, const float* x, float* out) {
  kernels::ReduceArgs args;
  args.rule = kernels::ReduceRule::kSumSquares;
  args.axis = axis;
  args.rows = rows;
  args.cols = args.ldx = cols;
  args.x = x;
  args.out = out;
  kernels::reduce(args);
}

}  // namespace bitgrad::detail
