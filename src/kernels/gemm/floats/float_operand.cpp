#include "kernels/gemm/floats/float_operand.h"

#include <algorithm>

#include "bitgrad/dtype/codec.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/floats/float_params.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

// Whether the scale depends on the stored row, or on the stored column.
bool by_row(const ScaleMap& map) { return map.row_step != 0; }
bool by_column(const ScaleMap& map) { return map.col_step != 0; }

}  // namespace

void read_values(const GemmOperand& x, int64_t r, int64_t c0, int64_t n, bool bare, float* out) {
  static const ScaleMap kNone;
  if (values_by_vectors(x.dtype, stored_row(x, r), bare ? kNone : x.scale, r, c0, n, out)) return;
  unpack_row(x.dtype, stored_row(x, r), c0, n, out);
  if (!bare && !x.scale.trivial()) apply_params(x.scale, r, c0, n, out);
}

void read_values(const GemmOperand& x, int64_t r, int64_t c0, int64_t n, bool bare, double* out) {
  if (bare || x.scale.trivial() || x.dtype == dtypes::fp64) {
    unpack_row(x.dtype, stored_row(x, r), c0, n, out);
    if (!bare && !x.scale.trivial()) apply_params(x.scale, r, c0, n, out);
    return;
  }
  constexpr int64_t kPiece = 256;
  float piece[kPiece];
  for (int64_t j = 0; j < n; j += kPiece) {
    const int64_t count = std::min(kPiece, n - j);
    read_values(x, r, c0 + j, count, bare, piece);
    std::copy(piece, piece + count, out + j);
  }
}

Fold fold_of(const GemmArgs& args) {
  if (!args.fold_b_scale || args.b.scale.scale == nullptr) return Fold::kNone;
  const bool by_n = args.b.k_major ? by_column(args.b.scale) : by_row(args.b.scale);
  return by_n ? Fold::kOntoSum : Fold::kIntoA;
}

bool fold_is_legal(const GemmArgs& args) {
  if (!args.fold_b_scale || args.b.scale.trivial()) return true;
  const ScaleMap& map = args.b.scale;
  return map.zero == nullptr && map.offset == nullptr && !(by_row(map) && by_column(map));
}

}  // namespace bitgrad::kernels::gemm_detail
