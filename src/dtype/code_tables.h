// Lookup tables of a code dtype, built on first use and never freed.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "bitgrad/dtype/dtype.h"
#include "dtype/unpack_loops.h"

namespace bitgrad::detail {

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
