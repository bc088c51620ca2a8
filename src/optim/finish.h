// From the sums of a window to finished gradients: division, straight-through rule, value clip. docs/numerics.md
// section 6, steps 1, 3 and 4.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "bitgrad/optim/update_rule.h"

namespace bitgrad::detail {

// Rows of finish_early at a time (the order of its sums): all where gradient and master are fp32, else about 65536
// numbers, whole groups where scales belong to groups of rows.
int64_t rows_at_a_time(const Parameter& p);

// Rows [begin, end) of a low-bit or float parameter's numbers as fp32: a view of an fp32 master, else a copy in
// workspace memory (widened from bf16, or dequantized from codes).
Tensor number_rows(const Parameter& p, int64_t begin, int64_t end);

// Rows [begin, end) of the gradient as fp32: a view of fp32 gradients, else a copy in workspace memory.
Tensor gradient_rows(const Parameter& p, int64_t begin, int64_t end);

// g [rows, cols] fp32, dense, sums of rows from `begin` on, becomes the gradient of the numbers x = number_rows(...) of
// the same rows. learned: one fp32 [blocks] per learned part, which gets the sums over these rows; empty: not wanted.
void finish_rows(const Parameter& p, const OptimizerSpec& spec, int64_t count, int64_t begin, const Tensor& g,
                 const Tensor& x, std::span<const Tensor> learned);

// The same without learned parts, in one sweep where the scheme's rule is identity, or clip by given bounds of the
// numbers. Returns whether all sums were finite; `check` false: not checked.
bool finish_chunk(const Parameter& p, const OptimizerSpec& spec, int64_t count, int64_t begin, const Tensor& g,
                  const Tensor& x, bool check);

// The sum of squares of the finished fp32 gradient of p, in the order of docs/numerics.md section 8, without moving
// anything. none: a sum over the samples is not finite.
// Only where squares_by_blocks(p): blocks of rows that are whole chunks of that sum are not too large.
bool squares_by_blocks(const Parameter& p);
std::optional<float> finished_squares(const Parameter& p, const OptimizerSpec& spec, int64_t count);

// g (fp32, rows from `begin` on) as a bf16 gradient would hold it: to nearest even, or by the parameter's draws.
void round_to_bf16(const Parameter& p, int64_t begin, const Tensor& g);

// What the sums for the learned parts of p are divided by: fp32 [blocks], the scheme's divisor of each block.
Tensor learned_divisors(const Parameter& p);

// The sums of all rows become the gradients of the learned parts: divided, value clipped.
void finish_learned(const OptimizerSpec& spec, std::span<const Tensor> learned, const Tensor& divisors);

}  // namespace bitgrad::detail
