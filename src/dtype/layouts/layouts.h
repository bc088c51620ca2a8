// Declares the functions behind layouts.inc, and helpers shared by their files.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bitgrad/base/error.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/dtype/layout.h"

namespace bitgrad {

#define BITGRAD_LAYOUT(symbol, text, space)                                                              \
  namespace space {                                                                                      \
  bool supports(DType dtype);                                                                            \
  int64_t bytes(DType dtype, int64_t rows, int64_t cols);                                                \
  void pack(DType dtype, int64_t rows, int64_t cols, const void* canonical, int64_t stride, void* out);  \
  void unpack(DType dtype, int64_t rows, int64_t cols, const void* in, void* canonical, int64_t stride); \
  }
#include "bitgrad/dtype/layouts.inc"
#undef BITGRAD_LAYOUT
#define BITGRAD_LAYOUT_ROWS(symbol, unit, space)                                                                 \
  namespace space {                                                                                              \
  void pack_rows(DType dtype, int64_t rows, int64_t cols, const void* canonical, int64_t stride, void* out,      \
                 int64_t begin, int64_t end);                                                                    \
  void unpack_rows(DType dtype, int64_t rows, int64_t cols, const void* in, void* canonical, int64_t stride,     \
                   int64_t begin, int64_t end);                                                                  \
  inline void pack(DType dtype, int64_t rows, int64_t cols, const void* canonical, int64_t stride, void* out) {  \
    pack_rows(dtype, rows, cols, canonical, stride, out, 0, rows);                                               \
  }                                                                                                              \
  inline void unpack(DType dtype, int64_t rows, int64_t cols, const void* in, void* canonical, int64_t stride) { \
    unpack_rows(dtype, rows, cols, in, canonical, stride, 0, rows);                                              \
  }                                                                                                              \
  }
#include "dtype/layouts/rows.inc"
#undef BITGRAD_LAYOUT_ROWS

namespace detail {

inline int64_t round_up_64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Bytes that a packer may write per canonical row: a whole memory row, or less if the stride is smaller, as in files.
inline int64_t writable_row_bytes(DType dtype, int64_t cols, int64_t stride) {
  return std::min(row_bytes_memory(dtype, cols), stride);
}

inline void check_matrix(DType dtype, int64_t rows, int64_t cols, bool supported, const char* layout,
                         const char* expected) {
  require(supported, layout, "dtype: got ", dtype, ", expected ", expected, '.');
  require(rows >= 0 && cols >= 0, layout, "shape: got [", rows, ", ", cols, "], expected no negative size.");
}

// As check_matrix; also checks that canonical rows do not overlap.
inline void check_rows(DType dtype, int64_t rows, int64_t cols, int64_t stride, bool supported, const char* layout,
                       const char* expected) {
  check_matrix(dtype, rows, cols, supported, layout, expected);
  require(stride >= row_bytes_file(dtype, cols), layout, "row stride of ", dtype, " [", rows, ", ", cols, "]: got ",
          stride, " bytes, expected at least ", row_bytes_file(dtype, cols), '.');
}

}  // namespace detail
}  // namespace bitgrad
