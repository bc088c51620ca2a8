// The formulas for one finished element, shared by the loops of all devices (docs/numerics.md section 4, epilogue).
// Each operation is rounded once in Float; nothing is contracted.
#pragma once

#include <cstdint>

#include "bitgrad/base/device.h"

namespace bitgrad::kernels::gemm_detail {

__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

// Saturates a sum modulo 2^128 to int64.
BITGRAD_HD inline int64_t saturate_sum(UInt128 sum) {
  const Int128 x = static_cast<Int128>(sum);
  if (x > Int128{INT64_MAX}) return INT64_MAX;
  return x < Int128{INT64_MIN} ? INT64_MIN : static_cast<int64_t>(x);
}
// sum (qa - za)(qb - zb) - minus over k indices, computed from the sums of qa qb, qa and qb.
BITGRAD_HD inline int64_t without_zeros(int64_t sum, int64_t sum_a, int64_t sum_b, int64_t k, int64_t za, int64_t zb,
                                        int64_t minus) {
  const Int128 exact = Int128{sum} - Int128{za} * sum_b - Int128{zb} * sum_a + Int128{za} * zb * k;
  return saturate_sum(static_cast<UInt128>(exact) - static_cast<UInt128>(Int128{minus}));
}

// Scale and real offset of one operand at one free index; `has` is false without an offset.
template <typename Float>
struct SideParams {
  Float scale, offset;
  bool has_offset;
};
// ((float(S_ab)*(sa*sb) + float(S_a)*(sa*mb)) + float(S_b)*(ma*sb)) + float(K)*(ma*mb), omitting absent terms.
template <typename Float, typename Sum>
BITGRAD_HD inline Float offsets_value(Sum acc, Float sum_a, Sum sum_b, Float k, const SideParams<Float>& a,
                                      const SideParams<Float>& b) {
  Float y = static_cast<Float>(acc) * (a.scale * b.scale);
  if (b.has_offset) y = y + sum_a * (a.scale * b.offset);
  if (a.has_offset) y = y + static_cast<Float>(sum_b) * (a.offset * b.scale);
  if (a.has_offset && b.has_offset) y = y + k * (a.offset * b.offset);
  return y;
}
// The contribution of a group: float(acc)*s, or float(acc)*s + float(S_a)*m.
template <typename Float, typename Sum>
BITGRAD_HD inline Float group_term(Sum acc, Float scale) {
  return static_cast<Float>(acc) * scale;
}
template <typename Float, typename Sum>
BITGRAD_HD inline Float group_term(Sum acc, Float scale, Float sum_a, Float offset) {
  return static_cast<Float>(acc) * scale + sum_a * offset;
}

}  // namespace bitgrad::kernels::gemm_detail
