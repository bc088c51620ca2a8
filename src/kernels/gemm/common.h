// Helpers that the rows of family gemm share: what an operand is, and its scale and zero point by free index.
#pragma once

#include <cstdint>

#include "bitgrad/dtype/codec.h"
#include "bitgrad/kernels/gemm.h"

namespace bitgrad::gemm_detail {

// Kinds whose codes are integers.
inline bool has_integer_codes(DType dtype) {
  const DTypeKind kind = dtype.kind();
  return kind == DTypeKind::kInt || kind == DTypeKind::kUint || kind == DTypeKind::kSign;
}
// The same in at most 8 bits.
inline bool has_small_integer_codes(DType dtype) { return dtype.is_code() && has_integer_codes(dtype); }

// One scale for the whole operand or one per free index (row m of A, row n of B).
inline bool scaled_per_free_index(const GemmOperand& x) {
  return x.scale.per_tensor() || (x.k_major ? x.scale.per_column() : x.scale.per_row());
}

// Where the parameters of free index f lie. Only if scaled_per_free_index.
inline int64_t free_param(const GemmOperand& x, int64_t f) {
  return x.k_major ? x.scale.index(0, f) : x.scale.index(f, 0);
}
// 1 and 0 when there is none.
inline float free_scale(const GemmOperand& x, int64_t f) {
  return x.scale.scale == nullptr ? 1.0f : x.scale.scale[free_param(x, f)];
}
inline int32_t free_zero(const GemmOperand& x, int64_t f) {
  return x.scale.zero == nullptr ? 0 : x.scale.zero[free_param(x, f)];
}

// Row r of the stored matrix (canonical).
inline const uint8_t* stored_row(const GemmOperand& x, int64_t r) {
  return static_cast<const uint8_t*>(x.data) + r * x.stride;
}

// Whether an exact sum can be written as the caller asks: integers are bare codes; bias belongs to fp32 and bf16,
// accumulation to floats.
inline bool integer_output_supported(const GemmArgs& args) {
  const DType c = args.c_dtype;
  if (c == dtypes::fp32 || c == dtypes::bf16) return true;
  if (args.bias != nullptr) return false;
  if (c == dtypes::fp64) return true;
  return (c == dtypes::int32 || c == dtypes::int64) && !args.accumulate && args.a.scale.trivial() &&
         args.b.scale.trivial();
}

inline double multiply_adds(const GemmArgs& args) {
  return static_cast<double>(args.m) * static_cast<double>(args.n) * static_cast<double>(args.k);
}

// Nanoseconds added to every scalar reference, so that none is chosen where a row with vector instructions is usable.
inline constexpr double kReferenceCost = 1e12;

inline int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }
inline int64_t ceil_div(int64_t x, int64_t unit) { return (x + unit - 1) / unit; }

}  // namespace bitgrad::gemm_detail
