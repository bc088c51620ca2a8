// tiles16: [panel][tile_words(bits, cols) 32-bit words of a canonical row][16 rows]. Canonical rows are interleaved, so
// that 64 bytes hold the same columns of 16 rows and a matrix unit's tile rows are extracted from them as bit fields.
// Columns are padded to multiples of 64; padding rows and bits are zero. Codes of 2, 4 or 8 bits (one bit: panels16).
#include <cstring>

#include "dtype/bit_tricks.h"
#include "dtype/layouts/layouts.h"

namespace bitgrad::tiles16_layout {
namespace {

constexpr char kWhere[] = "layout tiles16";
constexpr char kExpected[] = "a code dtype of 2, 4 or 8 bits";

// Index of the first word of row r; its words are kPanelRows apart.
int64_t lane_of_row(int64_t r, int64_t words) { return r / kPanelRows * words * kPanelRows + r % kPanelRows; }

// Number of 64-bit words that contain codes.
int64_t used_words(int bits, int64_t cols) { return (cols * bits + 63) / 64; }

}  // namespace

bool supports(DType dtype) { return dtype.bits() == 2 || dtype.bits() == 4 || dtype.bits() == 8; }

int64_t bytes(DType dtype, int64_t rows, int64_t cols) {
  detail::check_matrix(dtype, rows, cols, supports(dtype), kWhere, kExpected);
  return panel_count(rows) * tile_words(dtype.bits(), cols) * kPanelRows * 4;
}

void pack_rows(DType dtype, int64_t rows, int64_t cols, const void* canonical, int64_t stride, void* out, int64_t begin,
               int64_t end) {
  detail::check_rows(dtype, rows, cols, stride, supports(dtype), kWhere, kExpected);
  const int64_t total_bits = cols * dtype.bits(), words = tile_words(dtype.bits(), cols);
  const int64_t used = used_words(dtype.bits(), cols);
  const int64_t past = end == rows ? panel_count(rows) * kPanelRows : end;
  for (int64_t r = begin; r < past; ++r) {
    uint32_t* lane = static_cast<uint32_t*>(out) + lane_of_row(r, words);
    int64_t k = 0;
    if (r < rows) {
      const uint8_t* row = static_cast<const uint8_t*>(canonical) + r * stride;
      for (; k < used; ++k) {
        const uint64_t w = detail::load_row_word(row, k, total_bits);
        lane[2 * k * kPanelRows] = static_cast<uint32_t>(w);
        lane[(2 * k + 1) * kPanelRows] = static_cast<uint32_t>(w >> 32);
      }
    }
    for (int64_t w = 2 * k; w < words; ++w) lane[w * kPanelRows] = 0;
  }
}

void unpack_rows(DType dtype, int64_t rows, int64_t cols, const void* in, void* canonical, int64_t stride,
                 int64_t begin, int64_t end) {
  detail::check_rows(dtype, rows, cols, stride, supports(dtype), kWhere, kExpected);
  const int64_t total_bits = cols * dtype.bits(), words = tile_words(dtype.bits(), cols);
  const int64_t row_bytes = detail::writable_row_bytes(dtype, cols, stride);
  for (int64_t r = begin; r < end; ++r) {
    const uint32_t* lane = static_cast<const uint32_t*>(in) + lane_of_row(r, words);
    uint8_t* row = static_cast<uint8_t*>(canonical) + (r - begin) * stride;
    for (int64_t k = 0; k < used_words(dtype.bits(), cols); ++k) {
      const uint64_t w = lane[2 * k * kPanelRows] | (static_cast<uint64_t>(lane[(2 * k + 1) * kPanelRows]) << 32);
      detail::store_row_word(row, k, row_bytes, w & detail::low_mask(total_bits - 64 * k));
    }
  }
}

}  // namespace bitgrad::tiles16_layout
