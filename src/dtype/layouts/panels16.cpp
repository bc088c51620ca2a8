// panels16, panels of 16 rows: [plane][panel][panel_words(cols) 32-bit words][16 rows], plane p = bit p of the code.
// Rows of the weight, i.e. columns of the product, map to the lanes of a register. Padding rows and bits are zero.
// Codes of at most 2 bits.
#include <cstring>

#include "dtype/bit_tricks.h"
#include "dtype/layouts/layouts.h"

namespace bitgrad::panels16_layout {
namespace {

constexpr char kWhere[] = "layout panels16";
constexpr char kExpected[] = "a code dtype of at most 2 bits";

// 64 one-bit codes fill words 2k and 2k + 1 of a row's lane.
void pack_row_1(const uint8_t* row, int64_t cols, uint32_t* lane) {
  const int64_t words = panel_words(cols);
  for (int64_t k = 0; 2 * k < words; ++k) {
    const uint64_t w = detail::load_row_word(row, k, cols);
    lane[2 * k * kPanelRows] = static_cast<uint32_t>(w);
    if (2 * k + 1 < words) lane[(2 * k + 1) * kPanelRows] = static_cast<uint32_t>(w >> 32);
  }
}

// 64 bits hold 32 two-bit codes: word k of both planes.
void pack_row_2(const uint8_t* row, int64_t cols, uint32_t* lane0, uint32_t* lane1) {
  for (int64_t k = 0; k < panel_words(cols); ++k) {
    const uint64_t w = detail::unshuffle(detail::load_row_word(row, k, 2 * cols));
    lane0[k * kPanelRows] = static_cast<uint32_t>(w);
    lane1[k * kPanelRows] = static_cast<uint32_t>(w >> 32);
  }
}

void unpack_row_1(const uint32_t* lane, int64_t cols, uint8_t* row, int64_t row_bytes) {
  const int64_t words = panel_words(cols);
  for (int64_t k = 0; 2 * k < words; ++k) {
    uint64_t w = lane[2 * k * kPanelRows];
    if (2 * k + 1 < words) w |= static_cast<uint64_t>(lane[(2 * k + 1) * kPanelRows]) << 32;
    detail::store_row_word(row, k, row_bytes, w & detail::low_mask(cols - 64 * k));
  }
}

void unpack_row_2(const uint32_t* lane0, const uint32_t* lane1, int64_t cols, uint8_t* row, int64_t row_bytes) {
  for (int64_t k = 0; k < panel_words(cols); ++k) {
    const uint64_t w = lane0[k * kPanelRows] | (static_cast<uint64_t>(lane1[k * kPanelRows]) << 32);
    detail::store_row_word(row, k, row_bytes, detail::shuffle(w) & detail::low_mask(2 * (cols - 32 * k)));
  }
}

int64_t plane_size(int64_t rows, int64_t cols) { return panel_count(rows) * panel_words(cols) * kPanelRows; }

// Index of the first word of row r in plane 0; its words are kPanelRows apart.
int64_t lane_of_row(int64_t r, int64_t cols) {
  return r / kPanelRows * panel_words(cols) * kPanelRows + r % kPanelRows;
}

}  // namespace

bool supports(DType dtype) { return dtype.bits() <= 2; }

int64_t bytes(DType dtype, int64_t rows, int64_t cols) {
  detail::check_matrix(dtype, rows, cols, supports(dtype), kWhere, kExpected);
  return detail::round_up_64(dtype.bits() * plane_size(rows, cols) * 4);
}

void pack_rows(DType dtype, int64_t rows, int64_t cols, const void* canonical, int64_t stride, void* out, int64_t begin,
               int64_t end) {
  detail::check_rows(dtype, rows, cols, stride, supports(dtype), kWhere, kExpected);
  const int bits = dtype.bits();
  const int64_t plane = plane_size(rows, cols);
  auto* words = static_cast<uint32_t*>(out);
  for (int64_t r = begin; r < end; ++r) {
    const uint8_t* row = static_cast<const uint8_t*>(canonical) + r * stride;
    uint32_t* lane = words + lane_of_row(r, cols);
    if (bits == 1) {
      pack_row_1(row, cols, lane);
    } else {
      pack_row_2(row, cols, lane, lane + plane);
    }
  }
  if (end != rows) return;
  for (int64_t r = rows; r < panel_count(rows) * kPanelRows; ++r) {
    for (int p = 0; p < bits; ++p) {
      uint32_t* lane = words + p * plane + lane_of_row(r, cols);
      for (int64_t k = 0; k < panel_words(cols); ++k) lane[k * kPanelRows] = 0;
    }
  }
}

void unpack_rows(DType dtype, int64_t rows, int64_t cols, const void* in, void* canonical, int64_t stride,
                 int64_t begin, int64_t end) {
  detail::check_rows(dtype, rows, cols, stride, supports(dtype), kWhere, kExpected);
  const int bits = dtype.bits();
  const int64_t plane = plane_size(rows, cols), row_bytes = detail::writable_row_bytes(dtype, cols, stride);
  for (int64_t r = begin; r < end; ++r) {
    const uint32_t* lane = static_cast<const uint32_t*>(in) + lane_of_row(r, cols);
    uint8_t* row = static_cast<uint8_t*>(canonical) + (r - begin) * stride;
    if (bits == 1) {
      unpack_row_1(lane, cols, row, row_bytes);
    } else {
      unpack_row_2(lane, lane + plane, cols, row, row_bytes);
    }
  }
}

}  // namespace bitgrad::panels16_layout
