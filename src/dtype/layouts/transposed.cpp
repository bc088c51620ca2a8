// Transposed: canonical order of the transpose [cols, rows]. Codes whose width divides 64 are transposed in squares of
// whole words (Warren, "Hacker's Delight", 2nd ed., section 7-3), others through bytes in tiles of 64 x 64, whose rows
// start on whole words at every width.
#include <cstring>

#include "dtype/bit_tricks.h"
#include "dtype/layouts/layouts.h"

namespace bitgrad::transposed_layout {
namespace {

constexpr char kWhere[] = "layout transposed";
constexpr int64_t kTile = 64;

// Rows [r0, r0 + nr) and columns [c0, c0 + nc).
struct Tile {
  int64_t r0, nr, c0, nc;
};

// Fields of B bits, B a divisor of 64: a tile is a square of 64 / B words.
template <int B>
void transpose_field_tile(const Tile& t, const uint8_t* in, int64_t in_stride, int64_t cols, uint8_t* out,
                          int64_t out_stride, bool pad) {
  constexpr int64_t kSide = 64 / B;
  uint64_t square[kSide] = {};
  for (int64_t r = 0; r < t.nr; ++r)
    square[r] = detail::load_row_word(in + (t.r0 + r) * in_stride, t.c0 / kSide, cols * B);
  detail::transpose_fields<B>(square);
  uint8_t* const to = out + t.c0 * out_stride + t.r0 / kSide * 8;
  if (pad || t.nr == kSide) {
    for (int64_t c = 0; c < t.nc; ++c) std::memcpy(to + c * out_stride, &square[c], 8);
  } else {
    for (int64_t c = 0; c < t.nc; ++c)
      std::memcpy(to + c * out_stride, &square[c], static_cast<size_t>((t.nr * B + 7) / 8));
  }
}

// Codes of other widths go through bytes.
void transpose_byte_tile(DType dtype, const Tile& t, const uint8_t* in, int64_t in_stride, uint8_t* out,
                         int64_t out_stride, bool pad) {
  uint8_t line[kTile], tile[kTile * kTile];
  for (int64_t r = 0; r < t.nr; ++r) {
    unpack_row_raw(dtype, in + (t.r0 + r) * in_stride, t.c0, t.nc, line);
    for (int64_t c = 0; c < t.nc; ++c) tile[c * kTile + r] = line[c];
  }
  for (int64_t c = 0; c < t.nc; ++c)
    pack_row_raw(dtype, tile + c * kTile, t.nr, out + (t.c0 + c) * out_stride + t.r0 / 8 * dtype.bits(), pad);
}

// in [rows, cols] with in_stride -> out [cols, rows] with out_stride, codes of B bits. Whole words are written if
// out_stride has room for them, which zeroes the padding bits and bytes.
template <int B>
void transpose_codes(DType dtype, int64_t rows, int64_t cols, const uint8_t* in, int64_t in_stride, uint8_t* out,
                     int64_t out_stride) {
  constexpr bool kFields = 64 % B == 0;
  constexpr int64_t kSide = kFields ? 64 / B : kTile;
  const bool pad = out_stride >= row_bytes_memory(dtype, rows);
  const auto one = [&](int64_t r0, int64_t c0) {
    const Tile t{r0, std::min(kSide, rows - r0), c0, std::min(kSide, cols - c0)};
    if constexpr (kFields) {
      transpose_field_tile<B>(t, in, in_stride, cols, out, out_stride, pad);
    } else {
      transpose_byte_tile(dtype, t, in, in_stride, out, out_stride, pad);
    }
  };
  // Blocks of 8 x 8 tiles cover whole cache lines of both matrices.
  constexpr int64_t kBlock = kFields ? 8 * kSide : kSide;
  for (int64_t r = 0; r < rows; r += kBlock)
    for (int64_t c = 0; c < cols; c += kBlock)
      for (int64_t c0 = c; c0 < std::min(cols, c + kBlock); c0 += kSide)
        for (int64_t r0 = r; r0 < std::min(rows, r + kBlock); r0 += kSide) one(r0, c0);
  // If out_stride is between a file row and a memory row, the bytes beyond the file row are padding too.
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
      return detail::with_width(dtype.bits(), [&](auto width) {
        transpose_codes<decltype(width)::value>(dtype, rows, cols, from, in_stride, to, out_stride);
      });
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
