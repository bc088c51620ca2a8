// Look-up tables of a code dtype, built once on first use, valid for ever.
#pragma once

#include <cstdint>
#include <vector>

#include "bitgrad/dtype/dtype.h"

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
};

// Throws Error unless dtype has at most 8 bits; `where` is the caller's name.
const CodeTables& code_tables(DType dtype, const char* where);

}  // namespace bitgrad::detail
