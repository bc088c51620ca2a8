// Family reduce: sums in the fixed order of docs/numerics.md section 8, and statistics of blocks.
//
// Order of a sum of n floats: chunks of 1024; 16 lanes, where lane l adds x[l], x[l+16] .. from +0; lanes are joined as
// (l,l+8), (l,l+4), (l,l+2), (l,l+1); chunks are joined 2i with 2i+1 level by level, and an odd one moves up. Same bits
// on every ISA and for any number of threads.
#pragma once

#include <vector>

#include "bitgrad/kernels/kernel.h"
#include "kernels/floats.h"

namespace bitgrad::kernels {

enum class ReduceRule : uint8_t {
  kSum,         // sum of x
  kSumSquares,  // sum of x*x, each product rounded once
  kSumAbs,      // sum of abs x
  kMin,
  kMax,             // of x; of an empty block: +Inf and -Inf
  kAbsMax,          // max abs x; of an empty block: 0
  kSumPositive,     // sum of x over x > 0 (other elements add +0)
  kCountPositive,   // number of x > 0, as float
  kSumSquaredDiff,  // sum of (x - c)^2, c per output (args.center)
  kSumAbsDiff,      // sum of abs(x - c)
  kSumAbsAbove,     // sum of abs x over abs x > c (other elements add +0)
  kCountAbsAbove,   // number of abs x > c, as float
};

// out[j] = reduction over the elements of block j, in row-major order. Blocks of a row-major [rows, cols] matrix, fp32
// or bf16 (widened, with the bits of the widened matrix):
//   kAll: one;  kRows: one per row;  kColumns: one per column, summed down the rows;
//   kGroups: per row, runs of `group` columns; the last may be shorter.
enum class ReduceAxis : uint8_t { kAll, kRows, kColumns, kGroups };

struct ReduceArgs {
  ReduceRule rule = ReduceRule::kSum;
  ReduceAxis axis = ReduceAxis::kAll;
  int64_t rows = 0, cols = 0, group = 0;
  FloatsIn x = {};
  int64_t ldx = 0;                // elements between rows
  const float* times = nullptr;   // optional second operand, fp32, same shape and ldx: reduces x*times, each product
                                  // rounded once; kSum only
  const float* center = nullptr;  // c of the rules that use it: one per output
  float* out = nullptr;           // reduce_outputs(args) floats
  uint32_t* flags =
      nullptr;  // OR of kFlagNonFinite (quantize.h) if an x is NaN or Inf; the min, max and absmax rules skip NaN
};
KernelList<Kernel<ReduceArgs>>& reduce_kernels();
void reduce(const ReduceArgs& args);
// kMin into args.out and kMax into `high` from one read, with the bits of two reductions. Axes kRows and kGroups only;
// rule, times and center are ignored.
void reduce_ranges(const ReduceArgs& args, float* high);
// Number of outputs.
int64_t reduce_outputs(const ReduceArgs& args);

// Sums for the backward pass of a normalization, from one read: sum gy and sum gy * xhat with xhat = (x - mean) * inv,
// each operation rounded once, in the order above. gy and x: dense [rows, cols], each fp32 or bf16. column_step 1: per
// column; 0: one mean, inv and pair of sums for the whole matrix.
struct NormSumsArgs {
  int64_t rows = 0, cols = 0;
  FloatsIn gy = {}, x = {};
  const float *mean = nullptr, *inv = nullptr;
  int64_t column_step = 1;
  float *sum_gy = nullptr, *sum_gy_xhat = nullptr;
  // Clip rule for signs of the normalized values (column_step 1, CPU only): gy counts only where
  // |xhat * gamma + beta| <= 1, otherwise as +0. nullptr: no clipping.
  const float *clip_gamma = nullptr, *clip_beta = nullptr;
};
void norm_sums(const NormSumsArgs& args);

inline constexpr int64_t kSumChunk = 1024;  // elements
// Shorthands for contiguous arrays. The result is returned to the host: on other devices these wait for the kernel.
float sum(const float* x, int64_t n);
float sum_squares(const float* x, int64_t n);
bool all_finite(const float* x, int64_t n);
// Joins the sums of consecutive chunks of kSumChunk elements, in the order above.
float join_chunks(std::vector<float> chunks);
// ORs kFlagNonFinite (quantize.h) into *flags if an x is NaN or Inf.
void check_finite(int64_t n, const float* x, uint32_t* flags);

}  // namespace bitgrad::kernels
