// frag64, fragments of 64 rows: codes of 1 to 7 bits in the register order of wgmma. Geometry: frag64.h.
#include "dtype/layouts/frag64.h"

#include <cstring>

#include "dtype/layouts/layouts.h"

namespace bitgrad::frag64_layout {
namespace {

constexpr char kWhere[] = "layout frag64";
constexpr char kExpected[] = "a code dtype of 1 to 7 bits";

// Reads the raw code at column c of a canonical row, or ORs it into a cleared row; a code spans at most two bytes.
uint32_t raw_at(const uint8_t* row, int64_t c, int bits) {
  const int64_t bit = c * bits, shift = bit % 8;
  uint32_t word = row[bit / 8];
  if (shift + bits > 8) word |= uint32_t{row[bit / 8 + 1]} << 8;
  return (word >> shift) & ((1u << bits) - 1u);
}
void put_raw(uint8_t* row, int64_t c, int bits, uint32_t raw) {
  const int64_t bit = c * bits, shift = bit % 8;
  row[bit / 8] = static_cast<uint8_t>(row[bit / 8] | raw << shift);
  if (shift + bits > 8) row[bit / 8 + 1] = static_cast<uint8_t>(row[bit / 8 + 1] | raw >> (8 - shift));
}

// Calls visit(byte, shift, bits of the part, position of the part in the code) for each part of code (r, c).
template <typename Visit>
void visit_parts(int bits, int64_t r, int64_t c, int64_t cols, Visit visit) {
  int64_t base = (r / kRows * column_blocks(cols) + c / kColumns) * block_bytes(bits);
  int left = bits;
  for (const int part : {4, 2, 1}) {
    if ((bits & part) == 0) continue;
    left -= part;
    const CodePlace at = place(part, static_cast<int>(r % kRows), static_cast<int>(c % kColumns));
    visit(base + at.byte, at.shift, part, left);
    base += block_bytes(part);
  }
}

}  // namespace

bool supports(DType dtype) { return dtype.bits() >= 1 && dtype.bits() <= 7; }

int64_t bytes(DType dtype, int64_t rows, int64_t cols) {
  detail::check_matrix(dtype, rows, cols, supports(dtype), kWhere, kExpected);
  return row_blocks(rows) * column_blocks(cols) * block_bytes(dtype.bits());
}

void pack(DType dtype, int64_t rows, int64_t cols, const void* canonical, int64_t stride, void* out) {
  detail::check_rows(dtype, rows, cols, stride, supports(dtype), kWhere, kExpected);
  const int bits = dtype.bits();
  uint8_t* to = static_cast<uint8_t*>(out);
  if (rows > 0 && cols > 0) std::memset(to, 0, static_cast<size_t>(bytes(dtype, rows, cols)));
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t* row = static_cast<const uint8_t*>(canonical) + r * stride;
    for (int64_t c = 0; c < cols; ++c) {
      const uint32_t raw = raw_at(row, c, bits);
      visit_parts(bits, r, c, cols, [&](int64_t byte, int shift, int part, int position) {
        to[byte] = static_cast<uint8_t>(to[byte] | ((raw >> position) & ((1u << part) - 1u)) << shift);
      });
    }
  }
}

void unpack(DType dtype, int64_t rows, int64_t cols, const void* in, void* canonical, int64_t stride) {
  detail::check_rows(dtype, rows, cols, stride, supports(dtype), kWhere, kExpected);
  const int bits = dtype.bits();
  const uint8_t* from = static_cast<const uint8_t*>(in);
  const int64_t row_bytes = detail::writable_row_bytes(dtype, cols, stride);
  if (row_bytes == 0) return;  // rows without columns may have no memory
  for (int64_t r = 0; r < rows; ++r) {
    uint8_t* row = static_cast<uint8_t*>(canonical) + r * stride;
    std::memset(row, 0, static_cast<size_t>(row_bytes));
    for (int64_t c = 0; c < cols; ++c) {
      uint32_t raw = 0;
      visit_parts(bits, r, c, cols, [&](int64_t byte, int shift, int part, int position) {
        raw |= ((uint32_t{from[byte]} >> shift) & ((1u << part) - 1u)) << position;
      });
      put_raw(row, c, bits, raw);
    }
  }
}

}  // namespace bitgrad::frag64_layout
