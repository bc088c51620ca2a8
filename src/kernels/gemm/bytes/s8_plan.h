// How a small-integer product is cut: by its shape, dtypes and parameters, never by the number of threads.
#pragma once

#include <cstdint>

#include "kernels/gemm/bytes/s8.h"
#include "kernels/gemm/bytes/s8_expand.h"
#include "kernels/gemm/common/operands.h"

namespace bitgrad::kernels::gemm_detail {

inline constexpr int64_t kBlockRows = 384, kBlockColumns = 256;  // of a block of C

// Everything about the call that does not depend on the block of C.
struct S8Plan {
  const GemmArgs& args;
  const S8Kernel& kernel;
  IntegerProduct kind;
  ByteRange a, b;
  int64_t element;        // bytes of an expanded code
  int64_t ca, cb;         // of a tile in bytes, else 0
  int64_t group;          // contracted indices of one exact sum
  int64_t depth, step;    // k of a block; the same rounded to 8
  int64_t rows, columns;  // of a block of C
  bool zeros;
  bool small_groups;  // s8_groups.cpp runs it
  double bound;       // of the absolute value of every sum, and of all that it is made from

  S8Plan(const GemmArgs& args, const S8Kernel& kernel);
  // Whether k of one sum needs several blocks, so that sums are kept between them.
  bool several_blocks() const { return group > depth; }
  // qa - ca of `count` codes of expand_strip as bytes or words, with a pad up to `padded` (which meets zeros of B).
  void put_a(const int8_t* codes, int64_t count, int64_t padded, void* out) const;
};

// The largest block of k of products in small groups, in bytes of an expanded code, and the most groups in it.
inline constexpr int64_t kGroupDepthBytes = 512, kMaxGroups = 32;
// Codes of one group with its pad: whole 32-bit units.
inline int64_t padded_group(int64_t group, int64_t element) { return round_up(group, 4 / element); }

// One block of C, rows i0 .. and columns j0 .. of at most plan.rows x plan.columns.
void run_s8_chunk(const S8Plan& plan, int64_t i0, int64_t j0);   // !plan.small_groups, plan.bound <= 2^62
void run_s8_groups(const S8Plan& plan, int64_t i0, int64_t j0);  // plan.small_groups

}  // namespace bitgrad::kernels::gemm_detail
