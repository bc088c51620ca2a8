#include "kernels/gemm/float_operand.h"

#include <algorithm>

#include "bitgrad/dtype/codec.h"
#include "kernels/gemm/common.h"

namespace bitgrad::gemm_detail {
namespace {

// v[0..n) share one set of parameters.
template <typename Float>
void apply_constant(const ScaleMap& map, int64_t at, int64_t n, Float* v) {
  if (map.zero != nullptr) {
    const Float z = static_cast<Float>(map.zero[at]);
    for (int64_t j = 0; j < n; ++j) v[j] = v[j] - z;
  }
  if (map.scale != nullptr) {
    const Float s = map.scale[at];
    for (int64_t j = 0; j < n; ++j) v[j] = v[j] * s;
  }
  if (map.offset != nullptr) {
    const Float m = map.offset[at];
    for (int64_t j = 0; j < n; ++j) v[j] = v[j] + m;
  }
}

// One set per element, one after another.
template <typename Float>
void apply_each(const ScaleMap& map, int64_t at, int64_t n, Float* v) {
  if (map.zero != nullptr) {
    for (int64_t j = 0; j < n; ++j) v[j] = v[j] - static_cast<Float>(map.zero[at + j]);
  }
  if (map.scale != nullptr) {
    for (int64_t j = 0; j < n; ++j) v[j] = v[j] * map.scale[at + j];
  }
  if (map.offset != nullptr) {
    for (int64_t j = 0; j < n; ++j) v[j] = v[j] + map.offset[at + j];
  }
}

template <typename Float>
void apply(const ScaleMap& map, int64_t r, int64_t c0, int64_t n, Float* v) {
  if (map.col_step == 0) return apply_constant(map, map.index(r, 0), n, v);
  if (map.col_step == 1 && map.col_group == 1) return apply_each(map, map.index(r, c0), n, v);
  for (int64_t j = 0; j < n;) {
    const int64_t c = c0 + j;
    const int64_t run = std::min(n - j, map.col_group - c % map.col_group);
    apply_constant(map, map.index(r, c), run, v + j);
    j += run;
  }
}

// Whether the scale depends on the stored row, the stored column.
bool by_row(const ScaleMap& map) { return map.row_step != 0; }
bool by_column(const ScaleMap& map) { return map.col_step != 0; }

}  // namespace

void read_values(const GemmOperand& x, int64_t r, int64_t c0, int64_t n, bool bare, float* out) {
  unpack_row(x.dtype, stored_row(x, r), c0, n, out);
  if (!bare && !x.scale.trivial()) apply(x.scale, r, c0, n, out);
}

void read_values(const GemmOperand& x, int64_t r, int64_t c0, int64_t n, bool bare, double* out) {
  if (bare || x.scale.trivial() || x.dtype == dtypes::fp64) {
    unpack_row(x.dtype, stored_row(x, r), c0, n, out);
    if (!bare && !x.scale.trivial()) apply(x.scale, r, c0, n, out);
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

}  // namespace bitgrad::gemm_detail
