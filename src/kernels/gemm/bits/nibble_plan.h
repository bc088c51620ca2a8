// How a product by nibble counts is computed: which operand provides the tables, and how the work is cut.
#pragma once

#include "kernels/gemm/bits/nibble.h"

namespace bitgrad::kernels::gemm_detail {

inline constexpr int64_t kNibbleTransposed = 64;  // rows of counts that are transposed together

// One way to compute the product: tables from one operand, look-ups by the other.
struct NibblePlan {
  bool tables_of_b;
  bool ternary_tables;
  int64_t lanes, rows;  // rows of the operand that provides the tables, and of the other one
  int planes;           // words looked up per 60 bits
  int64_t groups;
  int64_t blocks;                  // of lanes
  int64_t chunk_rows, row_chunks;  // of the rows that are looked up
  double ns;
};
// The cheaper of the two ways to assign the operands.
NibblePlan nibble_plan(const GemmArgs& args, const NibbleKernel& kernel, NibbleDot dot);

}  // namespace bitgrad::kernels::gemm_detail
