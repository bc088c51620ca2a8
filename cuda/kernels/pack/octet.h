// Octets: eight adjacent elements of a row. Their codes of b bits fill exactly b bytes, so threads that process one
// octet each never share a byte of codes or of a bit mask.
#pragma once

#include <cstdint>

#include "bitgrad/base/device.h"
#include "cuda/device/vectors.h"

namespace bitgrad::cuda {

// Octets in a row of n elements, padded to whole words of 64 elements.
BITGRAD_HD constexpr int64_t padded_octets(int64_t n) { return (n + 63) / 64 * 8; }

// Canonical rows of codes on the device.
struct CodeRows {
  uint8_t* data = nullptr;
  int64_t stride = 0, bytes = 0;  // bytes: of a row with its padding
  int bits = 0;
  int unit = 1;  // bytes per load or store: a power of two that divides `bits` and to which all rows are aligned
};

inline CodeRows code_rows(const void* data, int64_t stride, int bits, int64_t cols) {
  const uint64_t lowest =
      reinterpret_cast<uintptr_t>(data) | static_cast<uint64_t>(stride) | static_cast<uint64_t>(bits);
  return {static_cast<uint8_t*>(const_cast<void*>(data)), stride, (cols * bits + 63) / 64 * 8, bits,
          static_cast<int>(lowest & (~lowest + 1))};
}

namespace detail {
template <typename T>
BITGRAD_DEVICE inline uint64_t load_units(const uint8_t* p, int bits) {
  uint64_t word = 0;
  for (int k = 0; k < bits; k += static_cast<int>(sizeof(T)))
    word |= static_cast<uint64_t>(*reinterpret_cast<const T*>(p + k)) << (8 * k);
  return word;
}
template <typename T>
BITGRAD_DEVICE inline void store_units(uint8_t* p, int bits, uint64_t word) {
  for (int k = 0; k < bits; k += static_cast<int>(sizeof(T)))
    *reinterpret_cast<T*>(p + k) = static_cast<T>(word >> (8 * k));
}
}  // namespace detail

// The codes of octet o of row r, packed in the low bits. Codes from element `cols` on are 0.
BITGRAD_DEVICE inline uint64_t load_octet(const CodeRows& rows, int64_t r, int64_t o, int64_t cols) {
  const uint8_t* p = rows.data + r * rows.stride + o * rows.bits;
  const int64_t left = cols - 8 * o;
  if (left >= 8) {
    if (rows.unit == 1) return detail::load_units<uint8_t>(p, rows.bits);
    if (rows.unit == 2) return detail::load_units<uint16_t>(p, rows.bits);
    if (rows.unit == 4) return detail::load_units<uint32_t>(p, rows.bits);
    return *reinterpret_cast<const uint64_t*>(p);
  }
  uint64_t word = 0;
  const int used = left <= 0 ? 0 : static_cast<int>(left) * rows.bits;
  for (int k = 0; 8 * k < used; ++k) word |= static_cast<uint64_t>(p[k]) << (8 * k);
  return word & ((uint64_t{1} << used) - 1);
}

// Writes b bytes, or fewer if the padded row ends earlier.
BITGRAD_DEVICE inline void store_octet(const CodeRows& rows, int64_t r, int64_t o, uint64_t codes) {
  uint8_t* p = rows.data + r * rows.stride + o * rows.bits;
  const int64_t left = rows.bytes - o * rows.bits;
  if (left >= rows.bits) {
    if (rows.unit == 1) return detail::store_units<uint8_t>(p, rows.bits, codes);
    if (rows.unit == 2) return detail::store_units<uint16_t>(p, rows.bits, codes);
    if (rows.unit == 4) return detail::store_units<uint32_t>(p, rows.bits, codes);
    *reinterpret_cast<uint64_t*>(p) = codes;
    return;
  }
  for (int k = 0; k < left; ++k) p[k] = static_cast<uint8_t>(codes >> (8 * k));
}

// Convert between eight packed codes and one byte per code.
BITGRAD_DEVICE inline uint64_t spread_octet(uint64_t codes, int bits) {
  const uint64_t mask = (1u << bits) - 1u;
  uint64_t bytes = 0;
  for (int k = 0; k < 8; ++k) bytes |= ((codes >> (k * bits)) & mask) << (8 * k);
  return bytes;
}
// Bit p of eight bytes as eight bits. The product moves bit 8 i to bit 56 + i; no two terms share a bit.
BITGRAD_DEVICE inline uint8_t bits_of_octet(uint64_t bytes, int p) {
  return static_cast<uint8_t>(((bytes >> p) & 0x0101010101010101u) * 0x0102040810204080u >> 56);
}

struct Numbers8 {
  float v[8];
};
// Elements p[0] .. p[7], with 0 from `count` on. wide: p is aligned to four elements.
BITGRAD_DEVICE inline Numbers8 load_numbers(const float* p, int64_t count, bool wide) {
  Numbers8 out;
  if (wide && count >= 8) {
    const Pack<float, 4> low = load_pack<4>(p), high = load_pack<4>(p + 4);
    for (int k = 0; k < 4; ++k) {
      out.v[k] = low.v[k];
      out.v[4 + k] = high.v[k];
    }
    return out;
  }
  for (int k = 0; k < 8; ++k) out.v[k] = k < count ? p[k] : 0.0f;
  return out;
}
// The same of bf16. wide: p is aligned to eight elements.
BITGRAD_DEVICE inline Numbers8 load_numbers(const uint16_t* p, int64_t count, bool wide) {
  Numbers8 out;
  if (wide && count >= 8) {
    const Pack<float, 8> x = load_floats<8>(p);
    for (int k = 0; k < 8; ++k) out.v[k] = x.v[k];
    return out;
  }
  for (int k = 0; k < 8; ++k) out.v[k] = k < count ? bf16_to_float(p[k]) : 0.0f;
  return out;
}
BITGRAD_DEVICE inline void store_numbers(float* p, int64_t count, bool wide, const Numbers8& x) {
  if (wide && count >= 8) {
    Pack<float, 4> low, high;
    for (int k = 0; k < 4; ++k) {
      low.v[k] = x.v[k];
      high.v[k] = x.v[4 + k];
    }
    store_pack<4>(p, low);
    store_pack<4>(p + 4, high);
    return;
  }
  for (int k = 0; k < 8; ++k)
    if (k < count) p[k] = x.v[k];
}

}  // namespace bitgrad::cuda
