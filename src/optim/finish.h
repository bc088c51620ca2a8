// From the sums of a window to finished gradients: division, straight-through rule, value clip. docs/numerics.md
// section 6, steps 1, 3 and 4.
#pragma once

#include <cstdint>
#include <span>

#include "bitgrad/optim/update_rule.h"

namespace bitgrad::detail {

// Rows that are finished and moved at a time: all where gradient and master are fp32, else about 65536 numbers, whole
// groups where scales belong to groups of rows.
int64_t rows_at_a_time(const Parameter& p);

// Rows [begin, end) of a low-bit or float parameter's numbers as fp32: a view of an fp32 master, else a copy in
// workspace memory (widened from bf16, or dequantized from codes).
Tensor number_rows(const Parameter& p, int64_t begin, int64_t end);

// Rows [begin, end) of the gradient of the numbers x = number_rows(p, begin, end), in fp32: in place for fp32
// gradients. learned: one fp32 [blocks] per learned part, which gets the sums over these rows; empty: not wanted.
Tensor finished_rows(const Parameter& p, const OptimizerSpec& spec, int64_t samples, int64_t begin, int64_t end,
                     const Tensor& x, std::span<const Tensor> learned);

// The sums of all rows become the gradients of the learned parts of p: divided by the scheme's divisor of each block,
// value clipped.
void finish_learned(const Parameter& p, const OptimizerSpec& spec, std::span<const Tensor> learned);

}  // namespace bitgrad::detail
