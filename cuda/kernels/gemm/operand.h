// Operands of family gemm as device kernels see them: addresses, code format, parameters.
#pragma once

#include <cstdint>

#include "bitgrad/base/device.h"
#include "bitgrad/dtype/dtype.h"

namespace bitgrad::cuda::gemm {

// How an element is stored and which value it represents.
enum class NumberForm : uint8_t { kFp32, kBf16, kFp16, kInt32, kInt64, kSigned, kUnsigned, kSign, kCodebook };

struct Operand {
  const uint8_t* data;
  int64_t stride;  // bytes between stored rows
  ScaleMap scale;
  NumberForm form;
  int32_t bits;
  bool k_major;
};

// Values of a codebook's raw codes.
struct Levels {
  float level[256];
};

// Same as ScaleMap::index, without divisions if there are no groups.
BITGRAD_HD inline int64_t param_index(const ScaleMap& map, int64_t r, int64_t c) {
  int64_t at = 0;
  if (map.row_step != 0) at = (map.row_group == 1 ? r : r / map.row_group) * map.row_step;
  if (map.col_step != 0) at += (map.col_group == 1 ? c : c / map.col_group) * map.col_step;
  return at;
}
BITGRAD_HD inline int64_t param_at(const Operand& x, int64_t f, int64_t k) {
  return x.k_major ? param_index(x.scale, k, f) : param_index(x.scale, f, k);
}
BITGRAD_HD inline int32_t zero_at(const Operand& x, int64_t at) {
  return x.scale.zero == nullptr ? 0 : x.scale.zero[at];
}
BITGRAD_HD inline float scale_at(const Operand& x, int64_t at) {
  return x.scale.scale == nullptr ? 1.0f : x.scale.scale[at];
}
BITGRAD_HD inline float offset_at(const Operand& x, int64_t at) {
  return x.scale.offset == nullptr ? 0.0f : x.scale.offset[at];
}

// Raw code of element i of a canonical row, at most 8 bits.
BITGRAD_HD inline uint32_t raw_code(const uint8_t* row, int64_t i, int bits) {
  const int64_t bit = i * bits;
  const uint8_t* p = row + (bit >> 3);
  const int shift = static_cast<int>(bit & 7);
  uint32_t word = p[0];
  if (shift + bits > 8) word |= static_cast<uint32_t>(p[1]) << 8;
  return (word >> shift) & ((1u << bits) - 1u);
}
// Value of a raw code. Not for codebooks.
BITGRAD_HD inline int32_t code_number(uint32_t raw, int bits, NumberForm form) {
  if (form == NumberForm::kSign) return raw != 0 ? 1 : -1;
  if (form == NumberForm::kSigned && (raw >> (bits - 1)) != 0) return static_cast<int32_t>(raw) - (1 << bits);
  return static_cast<int32_t>(raw);
}
// The stored row with the element at free index f and contracted index k.
BITGRAD_HD inline const uint8_t* row_of(const Operand& x, int64_t f, int64_t k) {
  return x.data + (x.k_major ? k : f) * x.stride;
}
BITGRAD_HD inline int64_t integer_at(const Operand& x, int64_t f, int64_t k) {
  const uint8_t* row = row_of(x, f, k);
  const int64_t i = x.k_major ? f : k;
  if (x.form == NumberForm::kInt32) return reinterpret_cast<const int32_t*>(row)[i];
  if (x.form == NumberForm::kInt64) return reinterpret_cast<const int64_t*>(row)[i];
  return code_number(raw_code(row, i, x.bits), x.bits, x.form);
}

union FloatBits {
  uint32_t bits;
  float value;
};
BITGRAD_HD inline float float_of_bits(uint32_t bits) {
  FloatBits x;
  x.bits = bits;
  return x.value;
}
BITGRAD_HD inline uint32_t bits_of_float(float value) {
  FloatBits x;
  x.value = value;
  return x.bits;
}
BITGRAD_HD inline float float_of_half(uint32_t h) {
  const uint32_t sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 0x3FFu;
  if (exponent == 31) return float_of_bits(sign | 0x7F800000u | (fraction << 13));
  if (exponent != 0) return float_of_bits(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float tiny = static_cast<float>(fraction) * 0x1p-24f;
  return sign != 0 ? -tiny : tiny;
}

// Value of an element before scale, zero point and offset.
BITGRAD_HD inline float float_number(const Operand& x, const Levels& levels, int64_t f, int64_t k) {
  const uint8_t* row = row_of(x, f, k);
  const int64_t i = x.k_major ? f : k;
  switch (x.form) {
    case NumberForm::kFp32:
      return reinterpret_cast<const float*>(row)[i];
    case NumberForm::kBf16:
      return float_of_bits(uint32_t{reinterpret_cast<const uint16_t*>(row)[i]} << 16);
    case NumberForm::kFp16:
      return float_of_half(reinterpret_cast<const uint16_t*>(row)[i]);
    case NumberForm::kCodebook:
      return levels.level[raw_code(row, i, x.bits)];
    default:
      return static_cast<float>(integer_at(x, f, k));
  }
}
// s * (q - z), s * q or s * q + m, rounding each operation once (docs/numerics.md section 4).
BITGRAD_HD inline float float_value(const Operand& x, const Levels& levels, int64_t f, int64_t k) {
  float v = float_number(x, levels, f, k);
  const ScaleMap& map = x.scale;
  if (map.scale == nullptr && map.zero == nullptr && map.offset == nullptr) return v;
  const int64_t at = param_at(x, f, k);
  if (map.zero != nullptr) v = v - static_cast<float>(map.zero[at]);
  if (map.scale != nullptr) v = v * map.scale[at];
  if (map.offset != nullptr) v = v + map.offset[at];
  return v;
}

}  // namespace bitgrad::cuda::gemm
