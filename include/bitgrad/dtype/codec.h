// Codes in memory: bit-level load and store, code <-> number, rows expanded to numbers and packed from codes.
//
// Canonical order: element i of a row lies in bits [i*b, (i+1)*b), LSB first, little endian. Rows of code dtypes start
// on 8 bytes in memory (on 1 byte in files); rows of wider dtypes (bits >= 16) are dense. Pad bits are zero.
#pragma once

#include <cstdint>
#include <cstring>

#include "bitgrad/base/host_device.h"
#include "bitgrad/dtype/dtype.h"

namespace bitgrad {

// Bytes of one canonical row of n elements: in memory, and in a file.
int64_t row_bytes_memory(DType dtype, int64_t n);
int64_t row_bytes_file(DType dtype, int64_t n);

// Raw code of element i, i >= 0, bits <= 8. Reads only bytes that hold the element.
BITGRAD_HD inline uint32_t load_raw(const void* row, int64_t i, int bits) {
  const int64_t bit = i * bits;
  const auto* p = static_cast<const uint8_t*>(row) + (bit >> 3);
  const int shift = static_cast<int>(bit & 7);
  uint32_t word = p[0];
  if (shift + bits > 8) word |= static_cast<uint32_t>(p[1]) << 8;
  return (word >> shift) & ((1u << bits) - 1u);
}
BITGRAD_HD inline void store_raw(void* row, int64_t i, int bits, uint32_t raw) {
  const int64_t bit = i * bits;
  auto* p = static_cast<uint8_t*>(row) + (bit >> 3);
  const int shift = static_cast<int>(bit & 7);
  const uint32_t mask = ((1u << bits) - 1u) << shift;
  const uint32_t value = (raw << shift) & mask;
  p[0] = static_cast<uint8_t>((p[0] & ~mask) | value);
  if (shift + bits > 8) p[1] = static_cast<uint8_t>((p[1] & ~(mask >> 8)) | (value >> 8));
}

// Number of a raw code (int, uint, sign kinds): two's complement, unsigned, or -1 / +1.
int64_t decode_int(const DTypeInfo& info, uint64_t raw);
// Raw code of a number in [qmin, qmax]; sign kind: number >= 0 -> raw 1.
uint64_t encode_int(const DTypeInfo& info, int64_t number);
// The number of every raw code, 2^bits entries: the integer, +-1 or the level. Codes that never occur hold their two's
// complement number. Stays valid for ever; one table a dtype.
const float* code_values(DType dtype);
// The same as int8 plus a shift: number = table[raw] + shift. Kinds int, uint, sign only (uint8 has shift 128, all
// others 0).
const int8_t* code_values_s8(DType dtype, int* shift);

// out[j] = number of element first + j, for j in [0, n). Any dtype except fp64 and int64 (which round once to fp32). No
// scales.
void unpack_row(DType dtype, const void* row, int64_t first, int64_t n, float* out);
void unpack_row(DType dtype, const void* row, int64_t first, int64_t n, double* out);
// Integer kinds and sign only.
void unpack_row(DType dtype, const void* row, int64_t first, int64_t n, int64_t* out);
void unpack_row_s8(DType dtype, const void* row, int64_t first, int64_t n,
                   int8_t* out);  // table of code_values_s8, shift not added
// Raw codes, one byte each.
void unpack_row_raw(DType dtype, const void* row, int64_t first, int64_t n, uint8_t* out);
// Writes elements [0, n) of a row from raw codes (one byte each); pad bits up to row_bytes_memory are zeroed if
// pad_to_memory.
void pack_row_raw(DType dtype, const uint8_t* raw, int64_t n, void* row, bool pad_to_memory = true);
// Writes numbers into a row: floats round to nearest even; integers and signs must be exactly representable (else
// Error); codebooks take the nearest level, ties to the lower.
void pack_row(DType dtype, const double* numbers, int64_t n, void* row);

}  // namespace bitgrad
