// Look-up tables of a code dtype, built once on first use, valid for ever.
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
  float values[256] = {};  // number of every raw code; entries from 2^bits on repeat (a raw byte is taken mod 2^bits)
  bool integer = false;    // the int8 tables hold something
  int8_t s8[256] = {};     // number - shift
  int shift = 0;
  // bits 1, 2, 4: the 8 / bits numbers that one byte of a row holds, [256, 8 / bits]; else empty.
  std::vector<float> value_groups;
  std::vector<int8_t> s8_groups;
  // The same for the vector loops.
  ByteRule s8_rule{};
  FloatRule value_rule{};
};

// What code_tables has built, by id of the dtype.
extern std::atomic<const CodeTables*> known_code_tables[256];
const CodeTables& build_code_tables(DType dtype, const char* where);

// Throws Error unless dtype has at most 8 bits; `where` is the caller's name.
inline const CodeTables& code_tables(DType dtype, const char* where) {
  const CodeTables* known = known_code_tables[dtype.id()].load(std::memory_order_acquire);
  return known != nullptr ? *known : build_code_tables(dtype, where);
}

}  // namespace bitgrad::detail
