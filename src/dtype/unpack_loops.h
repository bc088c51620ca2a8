// Codes of a row to bytes and to floats, by vectors. Every loop gives the bits of the scalar expanders in codec.cpp,
// reads only bytes that hold its codes, and writes n numbers.
#pragma once

#include <cstdint>

namespace bitgrad::detail {

// n >= 1 codes of `bits` bits, 1 .. 8, back to back from bit `bit` (0 .. 7) of byte p[0].
struct CodeRun {
  const uint8_t* p;
  int bit, bits;
  int64_t n;
  int64_t bytes() const { return (bit + n * bits + 7) / 8; }
};

// byte = table[raw] (256 entries); equal to (raw ^ top) - top, which is used where there is no table (raw codes: top 0)
// and for wide codes. At most 7 bits: wider codes are bytes already.
struct ByteRule {
  const int8_t* table;
  uint8_t top;
};

// number = table[raw] (256 entries, at most 4 bits), or the code itself as two's complement or unsigned number.
enum class FloatSource { kTable, kInt, kUint };
struct FloatRule {
  const float* table;
  FloatSource source;
};

// Codes of 1 bit must start on a byte here.
void unpack_bytes_avx2(const CodeRun& run, const ByteRule& rule, uint8_t* out);
void unpack_bytes_vbmi(const CodeRun& run, const ByteRule& rule, uint8_t* out);
// Not kTable: look-ups by the byte are as fast.
void unpack_floats_avx2(const CodeRun& run, const FloatRule& rule, float* out);
void unpack_floats_avx512(const CodeRun& run, const FloatRule& rule, float* out);

}  // namespace bitgrad::detail
