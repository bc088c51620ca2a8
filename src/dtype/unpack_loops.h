// Vector loops that expand codes of a row to bytes and to floats. Every loop gives the same bits as the scalar
// expanders in codec.cpp, reads only bytes that contain its codes, and writes exactly n elements.
#pragma once

#include <cstdint>

namespace bitgrad::detail {

// n >= 1 codes of `bits` bits (1 .. 8), packed from bit `bit` (0 .. 7) of byte p[0] on.
struct CodeRun {
  const uint8_t* p;
  int bit, bits;
  int64_t n;
  int64_t bytes() const { return (bit + n * bits + 7) / 8; }
};

// byte = table[raw] (256 entries), which equals (raw ^ top) - top; that form is used if there is no table (raw codes:
// top is 0) and for wide codes. At most 7 bits: 8-bit codes are bytes already.
struct ByteRule {
  const int8_t* table;
  uint8_t top;
};

// value = table[raw] (256 entries, at most 4 bits), or the code itself as a two's complement or unsigned integer.
enum class FloatSource { kTable, kInt, kUint };
struct FloatRule {
  const float* table;
  FloatSource source;
};

// For codes of 1 bit, the run must start on a byte.
void unpack_bytes_avx2(const CodeRun& run, const ByteRule& rule, uint8_t* out);
void unpack_bytes_vbmi(const CodeRun& run, const ByteRule& rule, uint8_t* out);
// Not for kTable: the scalar table lookups are as fast.
void unpack_floats_avx2(const CodeRun& run, const FloatRule& rule, float* out);
void unpack_floats_avx512(const CodeRun& run, const FloatRule& rule, float* out);

}  // namespace bitgrad::detail
