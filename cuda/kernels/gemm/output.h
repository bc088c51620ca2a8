// The epilogue of every product on the device: scales, adds bias, accumulates, rounds and stores one element. Formulas:
// src/kernels/gemm/common/formulas.h and docs/numerics.md sections 4 and 7.
#pragma once

#include "bitgrad/base/rng.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/gemm/operand.h"
#include "kernels/gemm/common/formulas.h"

namespace bitgrad::cuda::gemm {

enum class OutputForm : uint8_t { kFp32, kBf16, kInt32, kInt64 };

struct Output {
  void* c;
  int64_t m, n, k, ldc;
  const float* bias;         // [n] or null
  const int64_t* row_minus;  // [m] or null
  OutputForm form;
  bool accumulate, stochastic;
  RandomStream draws;
  int64_t first_element;
};

// Parameters of one side, per tensor (step 0) or per free index (step 1).
struct FreeParams {
  const float* scale;
  const int32_t* zero;
  const float* offset;
  int64_t step;
};
BITGRAD_HD inline FreeParams free_params(const Operand& x) {
  const bool per_tensor = x.scale.row_step == 0 && x.scale.col_step == 0;
  return {x.scale.scale, x.scale.zero, x.scale.offset, per_tensor ? 0 : 1};
}

BITGRAD_HD inline uint32_t round_to_bf16(float x) {
  const uint32_t u = bits_of_float(x);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (u >> 16) | 0x40u;
  return (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
}
BITGRAD_HD inline uint32_t round_to_bf16(float x, uint32_t r16) {
  const uint32_t u = bits_of_float(x);
  return (u & 0x7F800000u) == 0x7F800000u ? round_to_bf16(x) : (u + r16) >> 16;
}

// Stores y to fp32 or bf16 after adding bias and accumulating.
BITGRAD_HD inline void store_value(const Output& out, int64_t i, int64_t j, float y) {
  if (out.bias != nullptr) y = y + out.bias[j];
  const int64_t at = i * out.ldc + j;
  if (out.form == OutputForm::kFp32) {
    float* c = static_cast<float*>(out.c) + at;
    *c = out.accumulate ? *c + y : y;
    return;
  }
  uint16_t* c = static_cast<uint16_t*>(out.c) + at;
  if (out.accumulate) y = float_of_bits(uint32_t{*c} << 16) + y;
  *c = static_cast<uint16_t>(
      out.stochastic ? round_to_bf16(y, out.draws.bits16(static_cast<uint64_t>(out.first_element + i * out.n + j)))
                     : round_to_bf16(y));
}

// Stores the exact sum acc, already corrected and saturated. Int is int32_t or int64_t.
template <typename Int>
BITGRAD_HD inline void store_plain(const Output& out, const FreeParams& a, const FreeParams& b, int64_t i, int64_t j,
                                   Int acc) {
  const int64_t at = i * out.ldc + j;
  if (out.form == OutputForm::kInt64) {
    static_cast<int64_t*>(out.c)[at] = acc;
  } else if (out.form == OutputForm::kInt32) {
    const int64_t x = acc;
    static_cast<int32_t*>(out.c)[at] = static_cast<int32_t>(x > INT32_MAX   ? int64_t{INT32_MAX}
                                                            : x < INT32_MIN ? int64_t{INT32_MIN}
                                                                            : x);
  } else {
    const float sa = a.scale == nullptr ? 1.0f : a.scale[i * a.step];
    const float sb = b.scale == nullptr ? 1.0f : b.scale[j * b.step];
    store_value(out, i, j, static_cast<float>(acc) * (sa * sb));
  }
}

// Stores one element of a product with real offsets, from the exact sums of (qa - za)(qb - zb), qa - za and qb - zb.
BITGRAD_HD inline void store_offsets(const Output& out, const FreeParams& a, const FreeParams& b, int64_t i, int64_t j,
                                     int64_t acc, int64_t sum_a, int64_t sum_b) {
  const gemm_detail::SideParams<float> pa{a.scale == nullptr ? 1.0f : a.scale[i * a.step],
                                          a.offset == nullptr ? 0.0f : a.offset[i * a.step], a.offset != nullptr};
  const gemm_detail::SideParams<float> pb{b.scale == nullptr ? 1.0f : b.scale[j * b.step],
                                          b.offset == nullptr ? 0.0f : b.offset[j * b.step], b.offset != nullptr};
  store_value(out, i, j,
              gemm_detail::offsets_value(acc, static_cast<float>(sum_a), sum_b, static_cast<float>(out.k), pa, pb));
}

// Stores one element of an integer product without groups, from the exact sums of qa qb, qa and qb. The last two are
// only read if there is a zero point or an offset.
BITGRAD_HD inline void store_sums(const Output& out, const FreeParams& a, const FreeParams& b, int64_t i, int64_t j,
                                  int64_t sum, int64_t sum_a, int64_t sum_b) {
  const int64_t za = a.zero == nullptr ? 0 : a.zero[i * a.step], zb = b.zero == nullptr ? 0 : b.zero[j * b.step];
  const int64_t minus = out.row_minus == nullptr ? 0 : out.row_minus[i];
  const int64_t acc = gemm_detail::without_zeros(sum, sum_a, sum_b, out.k, za, zb, minus);
  if (a.offset == nullptr && b.offset == nullptr) return store_plain(out, a, b, i, j, acc);
  store_offsets(out, a, b, i, j, acc, sum_a - out.k * za, sum_b - out.k * zb);
}

}  // namespace bitgrad::cuda::gemm
