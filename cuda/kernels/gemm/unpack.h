// Unpacks packed codes to bytes, four at a time, without a table.
#pragma once

#include <cstdint>

#include "bitgrad/base/device.h"
#include "cuda/kernels/gemm/operand.h"

namespace bitgrad::cuda::gemm {

// Converts fields of `bits` < 8 to signed bytes: ((u | 0x80..) - less) ^ 0x80.. with u = (fields << twice) ^ flip. No
// byte borrows from the next.
struct ByteRule {
  uint32_t flip, less, twice;
};
BITGRAD_HD constexpr ByteRule byte_rule(int bits, NumberForm form) {
  if (form == NumberForm::kSign) return {0, 0x01010101u, 1};
  if (form == NumberForm::kSigned) return {0x01010101u << (bits - 1), 0x01010101u << (bits - 1), 0};
  return {0, 0, 0};
}
// Fields 0 .. 3 of x, `kBits` each, in the low bits of four bytes.
template <int kBits>
BITGRAD_HD constexpr uint32_t spread_fields(uint32_t x) {
  constexpr uint32_t kField = (1u << kBits) - 1;
  return (x & kField) | ((x << (8 - kBits)) & (kField << 8)) | ((x << (16 - 2 * kBits)) & (kField << 16)) |
         ((x << (24 - 3 * kBits)) & (kField << 24));
}
BITGRAD_HD constexpr uint32_t apply_rule(uint32_t fields, ByteRule rule) {
  const uint32_t u = (fields << rule.twice) ^ rule.flip;
  return ((u | 0x80808080u) - rule.less) ^ 0x80808080u;
}
// Fields k .. k + 3 of a row of 32-bit words, one per byte. k is a multiple of 4.
template <int kBits>
BITGRAD_HD inline uint32_t fields4(const uint32_t* words, int k) {
  const int bit = k * kBits, at = bit / 32, shift = bit % 32;
  uint32_t x = words[at] >> shift;
  if (32 % (4 * kBits) != 0 && shift + 4 * kBits > 32) x |= words[at + 1] << (32 - shift);
  return spread_fields<kBits>(x);
}
// Same as fields4, as signed bytes.
template <int kBits>
BITGRAD_HD inline uint32_t unpack4(const uint32_t* words, int k, ByteRule rule) {
  return apply_rule(fields4<kBits>(words, k), rule);
}

// Mask of the first `valid` elements of `unit` bits in a word; 0 if `valid` is negative.
BITGRAD_HD inline uint32_t first_elements(int64_t valid, int unit) {
  if (valid * unit >= 32) return 0xFFFFFFFFu;
  return valid <= 0 ? 0u : (1u << static_cast<int>(valid * unit)) - 1u;
}

}  // namespace bitgrad::cuda::gemm
