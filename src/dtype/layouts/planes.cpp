// Planes: [plane][row][plane_words(cols)] 64-bit words, plane p = bit p of the code. Padding bits are zero. One and two
// bits (the activations of every step) are processed in whole words; other widths go through raw bytes.
#include <cstring>

#include "base/simd.h"
#include "bitgrad/base/cpu.h"
#include "dtype/bit_tricks.h"
#include "dtype/layouts/layouts.h"

namespace bitgrad::planes_layout {
namespace {

constexpr char kWhere[] = "layout planes";
constexpr char kExpected[] = "a code dtype of at most 8 bits";

void split_scalar(int64_t words, const uint8_t* in, uint64_t* low, uint64_t* high) {
  for (int64_t w = 0; w < words; ++w) {
    uint64_t pair[2];
    std::memcpy(pair, in + 16 * w, 16);
    const uint64_t a = detail::unshuffle(pair[0]), b = detail::unshuffle(pair[1]);
    low[w] = (a & 0xFFFFFFFFu) | (b << 32);
    high[w] = (a >> 32) | (b & ~uint64_t{0xFFFFFFFFu});
  }
}

#pragma GCC push_options
#pragma GCC target("bmi2")
void split_bmi2(int64_t words, const uint8_t* in, uint64_t* low, uint64_t* high) {
  constexpr uint64_t kEven = 0x5555555555555555u;
  for (int64_t w = 0; w < words; ++w) {
    uint64_t pair[2];
    __builtin_memcpy(pair, in + 16 * w, 16);
    low[w] = _pext_u64(pair[0], kEven) | _pext_u64(pair[1], kEven) << 32;
    high[w] = _pext_u64(pair[0], ~kEven) | _pext_u64(pair[1], ~kEven) << 32;
  }
}
#pragma GCC pop_options

// low[w] and high[w]: bits 0 and bits 1 of the 64 two-bit codes in words 2 w and 2 w + 1 of `in` (any alignment).
void split_pairs(int64_t words, const uint8_t* in, uint64_t* low, uint64_t* high) {
  if ((cpu_isa() & isa::kAvx2) != 0) return split_bmi2(words, in, low, high);
  split_scalar(words, in, low, high);
}

void split_row_1(const uint8_t* row, int64_t cols, uint64_t* plane0) {
  const int64_t words = plane_words(cols);
  if (words == 0) return;
  std::memcpy(plane0, row, static_cast<size_t>(words - 1) * 8);
  plane0[words - 1] = detail::load_row_word(row, words - 1, cols);
}

void split_row_2(const uint8_t* row, int64_t cols, uint64_t* plane0, uint64_t* plane1) {
  const int64_t full = cols / 64;
  split_pairs(full, row, plane0, plane1);
  if (full == plane_words(cols)) return;
  const uint64_t last[2] = {detail::load_row_word(row, 2 * full, 2 * cols),
                            detail::load_row_word(row, 2 * full + 1, 2 * cols)};
  uint8_t bytes[16];
  std::memcpy(bytes, last, 16);
  split_pairs(1, bytes, plane0 + full, plane1 + full);
}

void join_row_1(const uint64_t* plane0, int64_t cols, uint8_t* row, int64_t row_bytes) {
  for (int64_t w = 0; w < plane_words(cols); ++w) {
    detail::store_row_word(row, w, row_bytes, plane0[w] & detail::low_mask(cols - 64 * w));
  }
}

void join_row_2(const uint64_t* plane0, const uint64_t* plane1, int64_t cols, uint8_t* row, int64_t row_bytes) {
  for (int64_t w = 0; w < plane_words(cols); ++w) {
    const uint64_t keep = detail::low_mask(cols - 64 * w);
    const uint64_t p0 = plane0[w] & keep, p1 = plane1[w] & keep;
    detail::store_row_word(row, 2 * w, row_bytes, detail::shuffle((p0 & 0xFFFFFFFFu) | (p1 << 32)));
    detail::store_row_word(row, 2 * w + 1, row_bytes, detail::shuffle((p0 >> 32) | (p1 & ~uint64_t{0xFFFFFFFFu})));
  }
}

// Gathers bit p of 8 bytes into 8 bits. The product moves bit 8 i to bit 56 + i; no two terms share a bit.
uint64_t bits_of_bytes(uint64_t bytes, int p) {
  return ((bytes >> p) & 0x0101010101010101u) * 0x0102040810204080u >> 56;
}
// 8 bits -> 8 bytes of 0 or 1.
uint64_t bytes_of_bits(uint64_t bits) { return detail::spread_codes<1>(bits); }

void split_row_any(DType dtype, int bits, const uint8_t* row, int64_t cols, uint64_t* out, int64_t plane_stride) {
  for (int64_t w = 0; w < plane_words(cols); ++w) {
    uint8_t raw[64] = {};
    unpack_row_raw(dtype, row, 64 * w, std::min<int64_t>(64, cols - 64 * w), raw);
    uint64_t bytes[8];
    std::memcpy(bytes, raw, 64);
    for (int p = 0; p < bits; ++p) {
      uint64_t word = 0;
      for (int i = 0; i < 8; ++i) word |= bits_of_bytes(bytes[i], p) << (8 * i);
      out[p * plane_stride + w] = word;
    }
  }
}

void join_row_any(DType dtype, int bits, const uint64_t* in, int64_t plane_stride, int64_t cols, uint8_t* row,
                  int64_t row_bytes) {
  for (int64_t w = 0; w < plane_words(cols); ++w) {
    uint64_t bytes[8] = {};
    for (int p = 0; p < bits; ++p) {
      const uint64_t word = in[p * plane_stride + w];
      for (int i = 0; i < 8; ++i) bytes[i] |= bytes_of_bits((word >> (8 * i)) & 0xFF) << p;
    }
    uint8_t raw[64];
    std::memcpy(raw, bytes, 64);
    // 64 codes of b bits are 8 b bytes, so every block starts on a word of the row.
    uint64_t packed[8] = {};
    pack_row_raw(dtype, raw, std::min<int64_t>(64, cols - 64 * w), packed);
    for (int i = 0; i < bits; ++i) detail::store_row_word(row, w * bits + i, row_bytes, packed[i]);
  }
}

}  // namespace

bool supports(DType dtype) { return dtype.is_code(); }

int64_t bytes(DType dtype, int64_t rows, int64_t cols) {
  detail::check_matrix(dtype, rows, cols, supports(dtype), kWhere, kExpected);
  return detail::round_up_64(dtype.bits() * rows * plane_words(cols) * 8);
}

void pack_rows(DType dtype, int64_t rows, int64_t cols, const void* canonical, int64_t stride, void* out, int64_t begin,
               int64_t end) {
  detail::check_rows(dtype, rows, cols, stride, supports(dtype), kWhere, kExpected);
  const int bits = dtype.bits();
  const int64_t words = plane_words(cols), plane_stride = rows * words;
  auto* planes = static_cast<uint64_t*>(out);
  for (int64_t r = begin; r < end; ++r) {
    const uint8_t* row = static_cast<const uint8_t*>(canonical) + r * stride;
    uint64_t* to = planes + r * words;
    if (bits == 1) {
      split_row_1(row, cols, to);
    } else if (bits == 2) {
      split_row_2(row, cols, to, to + plane_stride);
    } else {
      split_row_any(dtype, bits, row, cols, to, plane_stride);
    }
  }
  if (end != rows) return;
  for (int64_t w = bits * plane_stride; w < bytes(dtype, rows, cols) / 8; ++w) planes[w] = 0;
}

void unpack_rows(DType dtype, int64_t rows, int64_t cols, const void* in, void* canonical, int64_t stride,
                 int64_t begin, int64_t end) {
  detail::check_rows(dtype, rows, cols, stride, supports(dtype), kWhere, kExpected);
  const int bits = dtype.bits();
  const int64_t words = plane_words(cols), plane_stride = rows * words;
  const int64_t row_bytes = detail::writable_row_bytes(dtype, cols, stride);
  for (int64_t r = begin; r < end; ++r) {
    uint8_t* row = static_cast<uint8_t*>(canonical) + (r - begin) * stride;
    const uint64_t* from = static_cast<const uint64_t*>(in) + r * words;
    if (bits == 1) {
      join_row_1(from, cols, row, row_bytes);
    } else if (bits == 2) {
      join_row_2(from, from + plane_stride, cols, row, row_bytes);
    } else {
      join_row_any(dtype, bits, from, plane_stride, cols, row, row_bytes);
    }
  }
}

}  // namespace bitgrad::planes_layout
