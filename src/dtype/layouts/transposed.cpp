// Transposed: canonical order of the transpose [cols, rows]. Works in tiles of 64 x 64, whose rows start on whole words
// at every width.
#include <cstring>

#include "dtype/layouts/layouts.h"

namespace bitgrad::transposed_layout {
namespace {

constexpr char kWhere[] = "layout transposed";
constexpr int64_t kTile = 64;

// in [rows, cols] with in_stride -> out [cols, rows] with out_stride, codes of at most 8 bits. Whole words of 64 codes
// are written where out_stride leaves room for them, so pad bits and bytes come out zero.
void transpose_codes(DType dtype, int64_t rows, int64_t cols, const uint8_t* in, int64_t in_stride, uint8_t* out,
                     int64_t out_stride) {
  const int bits = dtype.bits();
  const bool pad = out_stride >= row_bytes_memory(dtype, rows);
  uint8_t line[kTile], tile[kTile * kTile];
  for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
    const int64_t nr = std::min(kTile, rows - r0);
    for (int64_t c0 = 0; c0 < cols; c0 += kTile) {
      const int64_t nc = std::min(kTile, cols - c0);
      for (int64_t r = 0; r < nr; ++r) {
        unpack_row_raw(dtype, in + (r0 + r) * in_stride, c0, nc, line);
        for (int64_t c = 0; c < nc; ++c) tile[c * kTile + r] = line[c];
      }
      for (int64_t c = 0; c < nc; ++c) {
        pack_row_raw(dtype, tile + c * kTile, nr, out + (c0 + c) * out_stride + r0 / 8 * bits, pad);
      }
    }
  }
  // A stride between the bytes of a file row and those of a memory row leaves bytes that are pad too.
  const int64_t used = row_bytes_file(dtype, rows);
  if (pad || rows == 0) return;
  for (int64_t c = 0; c < cols; ++c)
    std::memset(out + c * out_stride + used, 0, static_cast<size_t>(out_stride - used));
}

template <typename T>
void transpose_wide(int64_t rows, int64_t cols, const uint8_t* in, int64_t in_stride, uint8_t* out,
                    int64_t out_stride) {
  constexpr int64_t kBlock = 16, kSize = sizeof(T);
  for (int64_t r0 = 0; r0 < rows; r0 += kBlock) {
    for (int64_t c0 = 0; c0 < cols; c0 += kBlock) {
      for (int64_t c = c0; c < std::min(cols, c0 + kBlock); ++c) {
        for (int64_t r = r0; r < std::min(rows, r0 + kBlock); ++r) {
          std::memcpy(out + c * out_stride + r * kSize, in + r * in_stride + c * kSize, sizeof(T));
        }
      }
    }
  }
}

void transpose(DType dtype, int64_t rows, int64_t cols, const void* in, int64_t in_stride, void* out,
               int64_t out_stride) {
  const auto* from = static_cast<const uint8_t*>(in);
  auto* to = static_cast<uint8_t*>(out);
  switch (dtype.bits()) {
    case 16:
      return transpose_wide<uint16_t>(rows, cols, from, in_stride, to, out_stride);
    case 32:
      return transpose_wide<uint32_t>(rows, cols, from, in_stride, to, out_stride);
    case 64:
      return transpose_wide<uint64_t>(rows, cols, from, in_stride, to, out_stride);
    default:
      return transpose_codes(dtype, rows, cols, from, in_stride, to, out_stride);
  }
}

}  // namespace

bool supports(DType) { return true; }

int64_t bytes(DType dtype, int64_t rows, int64_t cols) {
  detail::check_matrix(dtype, rows, cols, true, kWhere, "any");
  return detail::round_up_64(cols * row_bytes_memory(dtype, rows));
}

void pack(DType dtype, int64_t rows, int64_t cols, const void* canonical, int64_t stride, void* out) {
  detail::check_rows(dtype, rows, cols, stride, true, kWhere, "any");
  const int64_t out_stride = row_bytes_memory(dtype, rows), used = cols * out_stride;
  transpose(dtype, rows, cols, canonical, stride, out, out_stride);
  if (used > 0) std::memset(static_cast<uint8_t*>(out) + used, 0, static_cast<size_t>(bytes(dtype, rows, cols) - used));
}

void unpack(DType dtype, int64_t rows, int64_t cols, const void* in, void* canonical, int64_t stride) {
  detail::check_rows(dtype, rows, cols, stride, true, kWhere, "any");
  transpose(dtype, cols, rows, in, row_bytes_memory(dtype, rows), canonical, stride);
}

}  // namespace bitgrad::transposed_layout
