// How a small-integer product is cut: by shape, dtypes and parameters, never by the number of threads.
#pragma once

#include <cstdint>

#include "kernels/gemm/bytes/s8.h"
#include "kernels/gemm/bytes/s8_expand.h"
#include "kernels/gemm/common/operands.h"

namespace bitgrad::kernels::gemm_detail {

inline constexpr int64_t kBlockRows = 384, kBlockColumns = 256;  // of a block of C

// Everything about the call that is the same for all blocks of C.
struct S8Plan {
  const GemmArgs& args;
  const S8Kernel& kernel;
  IntegerProduct kind;
  ByteRange a, b;
  int64_t element;        // bytes per expanded code
  int64_t ca, cb;         // for tiles in bytes, otherwise 0
  int64_t group;          // contracted indices per exact sum
  int64_t depth, step;    // k per block, and k rounded up to a multiple of 8
  int64_t rows, columns;  // of a block of C
  bool zeros;
  bool small_groups;  // run by s8_groups.cpp
  double bound;       // bound on the absolute value of every sum and of all terms in it

  S8Plan(const GemmArgs& args, const S8Kernel& kernel);
  // Whether a single sum spans several blocks of k, so that sums are kept between them.
  bool several_blocks() const { return group > depth; }
  // Writes qa - ca of `count` codes of expand_strip as bytes or words, padded up to `padded` (the padding is multiplied
  // by zeros of B).
  void put_a(const int8_t* codes, int64_t count, int64_t padded, void* out) const;
};

// For products in small groups: the maximum block of k, in bytes per expanded code, and the maximum number of groups in
// it.
inline constexpr int64_t kGroupDepthBytes = 512, kMaxGroups = 32;
// Padded size of a group in codes: whole 32-bit units.
inline int64_t padded_group(int64_t group, int64_t element) { return round_up(group, 4 / element); }

// Compute one block of C: rows from i0 and columns from j0, at most plan.rows x plan.columns.
void run_s8_chunk(const S8Plan& plan, int64_t i0, int64_t j0);   // !plan.small_groups, plan.bound <= 2^62
void run_s8_groups(const S8Plan& plan, int64_t i0, int64_t j0);  // plan.small_groups

}  // namespace bitgrad::kernels::gemm_detail
