// Family reduce: sums in the one order of docs/numerics.md section 8, and statistics of blocks.
//
// Order of a sum of n floats: chunks of 1024; 16 lanes, lane l adds x[l], x[l+16] .. from +0; lanes join (l,l+8),
// (l,l+4), (l,l+2), (l,l+1); chunks join 2i with 2i+1 level by level, an odd one moves up. The same bits on every ISA
// and any number of threads.
#pragma once

#include "bitgrad/kernels/kernel.h"

namespace bitgrad::kernels {

enum class ReduceRule : uint8_t {
  kSum,         // sum x
  kSumSquares,  // sum x*x, each product rounded once
  kSumAbs,      // sum abs x
  kMin,
  kMax,             // of x; empty: +Inf, -Inf
  kAbsMax,          // max abs x; empty: 0
  kSumPositive,     // sum of x over x > 0 (the other elements add +0)
  kCountPositive,   // number of x > 0, as float
  kSumSquaredDiff,  // sum (x - c)^2, c per output (args.center)
  kSumAbsDiff,      // sum abs(x - c)
  kSumAbsAbove,     // sum of abs x over abs x > c (the other elements add +0)
  kCountAbsAbove,   // number of abs x > c, as float
};

// out[j] = reduction over the elements of block j. Blocks of a row-major [rows, cols] fp32 matrix:
//   kAll: one;  kRows: one per row;  kColumns: one per column (order of the sum: down the rows);  kGroups: per row,
//   runs of `group` columns, ragged last.
// The order within a block is its row-major order.
enum class ReduceAxis : uint8_t { kAll, kRows, kColumns, kGroups };

struct ReduceArgs {
  ReduceRule rule = ReduceRule::kSum;
  ReduceAxis axis = ReduceAxis::kAll;
  int64_t rows = 0, cols = 0, group = 0;
  const float* x = nullptr;
  int64_t ldx = 0;
  const float* times =
      nullptr;  // optional second operand, same shape and ldx: reduces x*times (each product rounded once); kSum only
  const float* center = nullptr;  // c of the rules that read one: one per output
  float* out = nullptr;
  uint32_t* flags =
      nullptr;  // OR of kFlagNonFinite (quantize.h) if an x is NaN or Inf; NaN in min / max / absmax rules is skipped
};
std::span<const Kernel<ReduceArgs>> reduce_kernels();
void register_reduce_kernels(std::span<const Kernel<ReduceArgs>> kernels);  // of another device
void reduce(const ReduceArgs& args);
// kMin to args.out and kMax to `high` from one read, with the bits of two reductions. Axes kRows and kGroups; rule,
// times and center are not read.
void reduce_ranges(const ReduceArgs& args, float* high);
// Number of outputs.
int64_t reduce_outputs(const ReduceArgs& args);

// What the backward of a normalisation sums, from one read: sum gy and sum gy * xhat, xhat = (x - mean) * inv, each
// operation rounded once, in the order above. [rows, cols], dense. column_step 1: per column; 0: one mean, inv and pair
// of sums for all.
struct NormSumsArgs {
  int64_t rows = 0, cols = 0;
  const float *gy = nullptr, *x = nullptr;
  const float *mean = nullptr, *inv = nullptr;
  int64_t column_step = 1;
  float *sum_gy = nullptr, *sum_gy_xhat = nullptr;
  // Rule clip of the signs of the normalisation (column_step 1, on the CPU): gy counts where abs(xhat * gamma + beta)
  // <= 1, else as +0. nullptr: everywhere.
  const float *clip_gamma = nullptr, *clip_beta = nullptr;
};
void norm_sums(const NormSumsArgs& args);

// Contiguous shorthands. The host gets the number: on another device than the CPU they wait for it.
float sum(const float* x, int64_t n);
float sum_squares(const float* x, int64_t n);
bool all_finite(const float* x, int64_t n);
// ORs kFlagNonFinite (quantize.h) into *flags when an x is NaN or Inf.
void check_finite(int64_t n, const float* x, uint32_t* flags);

}  // namespace bitgrad::kernels
