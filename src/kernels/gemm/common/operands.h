// Helpers shared by the kernels of family gemm: properties of operands, the kind of integer product of a pair, and
// scale and zero point by free index.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bitgrad/dtype/codec.h"
#include "bitgrad/kernels/gemm.h"

namespace bitgrad::kernels::gemm_detail {

// Whether the codes of a dtype are integers.
inline bool has_integer_codes(DType dtype) {
  const DTypeKind kind = dtype.kind();
  return kind == DTypeKind::kInt || kind == DTypeKind::kUint || kind == DTypeKind::kSign;
}
// The same with at most 8 bits.
inline bool has_small_integer_codes(DType dtype) { return dtype.is_code() && has_integer_codes(dtype); }

// Whether there is one scale for the whole operand or one per free index (row m of A, row n of B).
inline bool scaled_per_free_index(const GemmOperand& x) {
  return x.scale.per_tensor() || (x.k_major ? x.scale.per_column() : x.scale.per_row());
}

// Index of the parameters of free index f. Requires scaled_per_free_index.
inline int64_t free_param(const GemmOperand& x, int64_t f) { return x.scale.per_tensor() ? 0 : f; }
// Scale and zero point of free index f; 1 and 0 if absent.
inline float free_scale(const GemmOperand& x, int64_t f) {
  return x.scale.scale == nullptr ? 1.0f : x.scale.scale[free_param(x, f)];
}

// Index of the parameters of free index f at contracted index k, for any map.
inline int64_t param_at(const GemmOperand& x, int64_t f, int64_t k) {
  return x.k_major ? x.scale.index(k, f) : x.scale.index(f, k);
}
inline float scale_at(const GemmOperand& x, int64_t at) { return x.scale.scale == nullptr ? 1.0f : x.scale.scale[at]; }
inline int32_t zero_at(const GemmOperand& x, int64_t at) { return x.scale.zero == nullptr ? 0 : x.scale.zero[at]; }
inline float offset_at(const GemmOperand& x, int64_t at) {
  return x.scale.offset == nullptr ? 0.0f : x.scale.offset[at];
}

// The kinds of integer products (see the contract in gemm.h).
enum class IntegerProduct {
  kNone,     // a product of floats
  kPlain,    // one sum, one scale per side
  kOffsets,  // one sum and real offsets
  kGroups    // sums by groups of B along k, of A, or of both
};
inline bool has_groups_along_k(const GemmOperand& x) { return (x.k_major ? x.scale.row_step : x.scale.col_step) != 0; }
// Contracted indices of such a group.
inline int64_t group_along_k(const GemmOperand& x) { return x.k_major ? x.scale.row_group : x.scale.col_group; }

// Whether rows of A have scales of their own in groups along k, and nothing but scales (inputs in blocks).
inline bool has_blocks(const GemmOperand& a) {
  return has_groups_along_k(a) && group_along_k(a) > 1 && a.scale.scale != nullptr && a.scale.zero == nullptr &&
         a.scale.offset == nullptr;
}
// Whether the groups of each of both operands that have groups are whole ones of the other.
inline bool groups_nest(const GemmArgs& args) {
  if (!has_groups_along_k(args.b)) return scaled_per_free_index(args.b);
  const int64_t a = group_along_k(args.a), b = group_along_k(args.b);
  return a % b == 0 || b % a == 0;
}
inline IntegerProduct integer_product(const GemmArgs& args) {
  const auto codes = [](const GemmOperand& x) {
    return has_integer_codes(x.dtype) && (x.scale.zero == nullptr || x.scale.offset == nullptr);
  };
  if (!codes(args.a) || !codes(args.b)) return IntegerProduct::kNone;
  if (has_blocks(args.a))
    return groups_nest(args) && !args.fold_b_scale ? IntegerProduct::kGroups : IntegerProduct::kNone;
  if (!scaled_per_free_index(args.a)) return IntegerProduct::kNone;
  const bool offset_a = args.a.scale.offset != nullptr, offset_b = args.b.scale.offset != nullptr;
  if (scaled_per_free_index(args.b)) {
    if (!offset_a && !offset_b) return IntegerProduct::kPlain;
    return args.fold_b_scale ? IntegerProduct::kNone : IntegerProduct::kOffsets;
  }
  const bool groups = has_groups_along_k(args.b) && !offset_a && !args.fold_b_scale;
  return groups ? IntegerProduct::kGroups : IntegerProduct::kNone;
}

// Number of contracted indices that are summed exactly before a scale is applied: the smaller group of both sides, or
// all.
inline int64_t exact_depth(const GemmArgs& args) {
  int64_t depth = args.k;
  if (integer_product(args) != IntegerProduct::kGroups) return depth;
  for (const GemmOperand* x : {&args.a, &args.b})
    if (has_groups_along_k(*x)) depth = std::min(depth, group_along_k(*x));
  return depth;
}

// The smallest and largest zero point of an operand with `free` rows; both 0 if it has none.
struct ZeroRange {
  int64_t low = 0, high = 0;
};
inline ZeroRange zero_range(const GemmOperand& x, int64_t free, int64_t k) {
  ZeroRange range;
  if (x.scale.zero == nullptr || free <= 0 || k <= 0) return range;
  const int64_t group = x.k_major ? x.scale.row_group : x.scale.col_group;
  const int64_t last_free = x.scale.per_tensor() ? 1 : free, step = has_groups_along_k(x) ? group : k;
  range.low = range.high = x.scale.zero[param_at(x, 0, 0)];
  for (int64_t f = 0; f < last_free; ++f) {
    for (int64_t i = 0; i < k; i += step) {
      const int64_t zero = x.scale.zero[param_at(x, f, i)];
      range.low = std::min(range.low, zero);
      range.high = std::max(range.high, zero);
    }
  }
  return range;
}

// Row r of the stored matrix (canonical layout).
inline const uint8_t* stored_row(const GemmOperand& x, int64_t r) {
  return static_cast<const uint8_t*>(x.data) + r * x.stride;
}

// Whether an exact sum can be written as requested. Integer outputs require bare codes, bias requires fp32 or bf16,
// accumulation a float output, and row_minus a single sum without offsets.
inline bool integer_output_supported(const GemmArgs& args) {
  const DType c = args.c_dtype;
  if (args.row_minus != nullptr && integer_product(args) != IntegerProduct::kPlain) return false;
  if (c == dtypes::fp32 || c == dtypes::bf16) return true;
  if (args.bias != nullptr) return false;
  if (c == dtypes::fp64) return true;
  return (c == dtypes::int32 || c == dtypes::int64) && !args.accumulate && args.a.scale.trivial() &&
         args.b.scale.trivial();
}

inline double multiply_adds(const GemmArgs& args) {
  return static_cast<double>(args.m) * static_cast<double>(args.n) * static_cast<double>(args.k);
}

// Nanoseconds added to the cost of every scalar reference, so that none is chosen if a vector kernel is usable.
inline constexpr double kReferenceCost = 1e12;

inline int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }
inline int64_t ceil_div(int64_t x, int64_t unit) { return (x + unit - 1) / unit; }

}  // namespace bitgrad::kernels::gemm_detail
