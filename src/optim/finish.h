// Turns the gradient sums of a window into finished gradients: division, straight-through rule, value clip.
// docs/numerics.md section 6, steps 1, 3 and 4.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bitgrad/optim/update_rule.h"

namespace bitgrad::detail {

// Rows that finish_early processes at a time, which defines the order of its sums: all rows if gradient and master are
// fp32, otherwise about 65536 elements, in whole groups if groups of rows share scales.
int64_t rows_at_a_time(const Parameter& p);

// Rows [begin, end) of the values of a parameter as fp32: a view of an fp32 master, otherwise a copy in workspace
// memory (widened from bf16, or dequantized from codes).
Tensor number_rows(const Parameter& p, int64_t begin, int64_t end);

// Rows [begin, end) of the gradient as fp32: a view of fp32 gradients, otherwise a copy in workspace memory.
Tensor gradient_rows(const Parameter& p, int64_t begin, int64_t end);

// Turns g [rows, cols] (fp32, dense; sums for the rows that start at `begin`) into the gradient of x = number_rows(...)
// of the same rows. learned: one fp32 [blocks] per learned part, which receives the sums over these rows; empty if not
// wanted.
void finish_rows(const Parameter& p, const OptimizerSpec& spec, double count, int64_t begin, const Tensor& g,
                 const Tensor& x, std::span<const Tensor> learned);

// The same without learned parts, in one pass if the scheme's rule is identity, or clip by fixed bounds of the values.
// Returns whether all sums were finite; without `check` it may return true unchecked.
bool finish_chunk(const Parameter& p, const OptimizerSpec& spec, double count, int64_t begin, const Tensor& g,
                  const Tensor& x, bool check);

// The sum of squares of the finished fp32 gradient of p, in the order of docs/numerics.md section 8, without changing
// any data: the sums of its chunks of 1024 elements, for kernels::join_chunks; nullopt if the gradient sums are not all
// finite. Of rows [begin, end), where begin is a multiple of square_unit(p), and end too, or is the number of rows.
// Requires squares_by_blocks(p): row blocks that consist of whole chunks of that sum have a reasonable size.
bool squares_by_blocks(const Parameter& p);
int64_t square_unit(const Parameter& p);
int64_t square_chunks(const Parameter& p, int64_t begin, int64_t end);
std::optional<std::vector<float>> finished_squares(const Parameter& p, const OptimizerSpec& spec, double count,
                                                   int64_t begin, int64_t end);

// Rounds g (fp32, rows from `begin`) to bf16 values as a bf16 gradient would be: to nearest even, or stochastically.
void round_to_bf16(const RandomStream* draws, int64_t begin, const Tensor& g);

// Divisors of the sums for the learned parts of p: fp32 [blocks], the scheme's divisor of each block.
Tensor learned_divisors(const Parameter& p);

// Turns the sums over all rows into gradients of the learned parts: divides and clips by value.
void finish_learned(const OptimizerSpec& spec, std::span<const Tensor> learned, const Tensor& divisors);

}  // namespace bitgrad::detail
