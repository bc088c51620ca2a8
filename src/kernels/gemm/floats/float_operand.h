// Operands of float products: the values of stored rows, and folding of B's scale.
//
// value = s * (q - z), s * q or s * q + m in fp32, each operation rounded once (docs/numerics.md sections 2 and 4);
// without parameters the value is q.
#pragma once

#include <cstdint>

#include "bitgrad/kernels/gemm.h"

namespace bitgrad::kernels::gemm_detail {

// out[j] = value of element (r, c0 + j) of the stored matrix for j in [0, n), or its bare code value q if `bare`.
// Canonical layout, any dtype except fp64.
void read_values(const GemmOperand& x, int64_t r, int64_t c0, int64_t n, bool bare, float* out);
// The same for the double reference: operands with parameters as above (fp64: in double), others exactly.
void read_values(const GemmOperand& x, int64_t r, int64_t c0, int64_t n, bool bare, double* out);

// Where B's scale is applied. kIntoA: one scale per k (or one for all), multiplied into A's values. kOntoSum: one per
// n.
enum class Fold { kNone, kIntoA, kOntoSum };
Fold fold_of(const GemmArgs& args);
// False if fold_b_scale is set for a B with a zero point or offset, or with a scale that depends on both k and n.
bool fold_is_legal(const GemmArgs& args);
// Index of B's scale for contracted index k (kIntoA) or for column n (kOntoSum).
inline int64_t fold_index_k(const GemmOperand& b, int64_t k) {
  return b.k_major ? b.scale.index(k, 0) : b.scale.index(0, k);
}
inline int64_t fold_index_n(const GemmOperand& b, int64_t n) {
  return b.k_major ? b.scale.index(0, n) : b.scale.index(n, 0);
}

}  // namespace bitgrad::kernels::gemm_detail
