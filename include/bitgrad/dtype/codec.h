// Packed codes in memory: bit-level load and store, code <-> value conversion, unpacking and packing of rows.
//
// Canonical order: element i of a row occupies bits [i*b, (i+1)*b), LSB first, little endian. Rows of code dtypes are
// 8-byte aligned in memory (byte aligned in files); rows of wider dtypes (16 bits or more) are dense. Pad bits are 0.
#pragma once

#include <cstdint>
#include <cstring>

#include "bitgrad/base/device.h"
#include "bitgrad/dtype/dtype.h"

namespace bitgrad {

// Size in bytes of one canonical row of n elements, in memory and in a file.
int64_t row_bytes_memory(DType dtype, int64_t n);
int64_t row_bytes_file(DType dtype, int64_t n);

// Loads or stores the raw code of element i >= 0, bits <= 8. Accesses only bytes that hold the element.
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

// Integer value of a raw code (kinds int, uint, sign): two's complement, unsigned, or -1 / +1.
int64_t decode_int(const DTypeInfo& info, uint64_t raw);
// Raw code of an integer in [qmin, qmax]. Kind sign: number >= 0 -> raw 1.
uint64_t encode_int(const DTypeInfo& info, int64_t number);
// Table of the values of all 2^bits raw codes: the integer, +-1 or the level. Codes that never occur hold their two's
// complement value. There is one table per dtype; it stays valid until the program ends.
const float* code_values(DType dtype);
// The same as int8 plus a shift: value = table[raw] + shift. Kinds int, uint and sign only. The shift is 128 for uint8
// and 0 for all other dtypes.
const int8_t* code_values_s8(DType dtype, int* shift);

// out[j] = value of element first + j for j in [0, n), without scales. Any dtype; values that are not exact in the
// output type (fp64, int64 and int32 as fp32) are rounded once.
void unpack_row(DType dtype, const void* row, int64_t first, int64_t n, float* out);
void unpack_row(DType dtype, const void* row, int64_t first, int64_t n, double* out);
// Integer kinds and sign only; throws Error for other kinds.
void unpack_row(DType dtype, const void* row, int64_t first, int64_t n, int64_t* out);
void unpack_row_s8(DType dtype, const void* row, int64_t first, int64_t n,
                   int8_t* out);  // values from the table of code_values_s8; shift not added
// Raw codes, one byte each. Code dtypes only.
void unpack_row_raw(DType dtype, const void* row, int64_t first, int64_t n, uint8_t* out);
// Packs raw codes (one byte each) into elements [0, n) of a row. pad_to_memory zeroes the pad up to row_bytes_memory.
void pack_row_raw(DType dtype, const uint8_t* raw, int64_t n, void* row, bool pad_to_memory = true);
// Writes values into a row. Floats are rounded to nearest even; codebooks take the nearest level, ties to the lower.
// Throws Error if an integer or sign is not exactly representable.
void pack_row(DType dtype, const double* numbers, int64_t n, void* row);

// Transposition of a canonical matrix on a device other than the CPU. Device kernels register it; transpose (tensor.h)
// calls it. On the CPU, packing layout `transposed` does the same.
struct TransposeArgs {
  int bits = 0;                // per element
  int64_t rows = 0, cols = 0;  // of `in`
  const void* in = nullptr;
  int64_t in_stride = 0;  // bytes
  void* out = nullptr;    // [cols, rows]; pad bits are zeroed
  int64_t out_stride = 0;
};
using TransposeFunction = void (*)(const TransposeArgs& args);
// Runs on the current device. Throws Error(kDevice) if it registered no implementation.
void transpose_on_device(const TransposeArgs& args);
void register_device_transpose(TransposeFunction function);

}  // namespace bitgrad
