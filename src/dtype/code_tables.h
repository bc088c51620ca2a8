// How codes of a row become bytes and floats: vector loops, and lookup tables of a code dtype. Every loop gives the
// same bits as the scalar expanders in codec.cpp, reads only bytes that contain its codes, and writes exactly n
// elements.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "bitgrad/dtype/dtype.h"

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
// n fp16 (or bf16) from p on, at any address.
void unpack_halves_avx2(const uint8_t* p, int64_t n, bool bf16, float* out);
void unpack_halves_avx512(const uint8_t* p, int64_t n, bool bf16, float* out);

// Built on first use and never freed.
struct CodeTables {
  DTypeKind kind = DTypeKind::kInt;
  int bits = 0;
  float values[256] = {};  // value of every raw code; a raw byte is taken mod 2^bits, so entries repeat from 2^bits on
  bool integer = false;    // the int8 tables are valid
  int8_t s8[256] = {};     // value - shift
  int shift = 0;
  // For 1, 2 and 4 bits: the 8 / bits values packed in each possible byte of a row, [256, 8 / bits]. Otherwise empty.
  std::vector<float> value_groups;
  std::vector<int8_t> s8_groups;
  // The same for the vector loops.
  ByteRule s8_rule{};
  FloatRule value_rule{};
};

// Tables built so far, indexed by dtype id.
extern std::atomic<const CodeTables*> known_code_tables[256];
const CodeTables& build_code_tables(DType dtype, const char* where);

// Throws Error if dtype has more than 8 bits; `where` is the caller's name.
inline const CodeTables& code_tables(DType dtype, const char* where) {
  const CodeTables* known = known_code_tables[dtype.id()].load(std::memory_order_acquire);
  return known != nullptr ? *known : build_code_tables(dtype, where);
}

}  // namespace bitgrad::detail
