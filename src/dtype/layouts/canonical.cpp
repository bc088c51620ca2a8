// Canonical: rows of packed codes, each row padded to a multiple of 8 bytes (wide dtypes: dense). Packing converts rows
// of any stride to this form.
#include <cstring>

#include "dtype/bit_tricks.h"
#include "dtype/layouts/layouts.h"

namespace bitgrad::canonical_layout {
namespace {

constexpr char kWhere[] = "layout canonical";

// Copies one row and clears its padding bits and bytes.
void copy_row(const uint8_t* from, int64_t used_bits, uint8_t* to, int64_t to_bytes) {
  const int64_t used = (used_bits + 7) / 8;
  if (used == 0) return;
  std::memcpy(to, from, static_cast<size_t>(used));
  if ((used_bits & 7) != 0) to[used - 1] = static_cast<uint8_t>(to[used - 1] & detail::low_mask(used_bits & 7));
  std::memset(to + used, 0, static_cast<size_t>(to_bytes - used));
}

}  // namespace

bool supports(DType) { return true; }

int64_t bytes(DType dtype, int64_t rows, int64_t cols) {
  detail::check_matrix(dtype, rows, cols, true, kWhere, "any");
  return detail::round_up_64(rows * row_bytes_memory(dtype, cols));
}

void pack(DType dtype, int64_t rows, int64_t cols, const void* canonical, int64_t stride, void* out) {
  detail::check_rows(dtype, rows, cols, stride, true, kWhere, "any");
  const int64_t row_bytes = row_bytes_memory(dtype, cols);
  auto* to = static_cast<uint8_t*>(out);
  for (int64_t r = 0; r < rows; ++r) {
    copy_row(static_cast<const uint8_t*>(canonical) + r * stride, cols * dtype.bits(), to + r * row_bytes, row_bytes);
  }
  const int64_t used = rows * row_bytes;
  if (used > 0) std::memset(to + used, 0, static_cast<size_t>(bytes(dtype, rows, cols) - used));
}

void unpack(DType dtype, int64_t rows, int64_t cols, const void* in, void* canonical, int64_t stride) {
  detail::check_rows(dtype, rows, cols, stride, true, kWhere, "any");
  const int64_t row_bytes = row_bytes_memory(dtype, cols);
  for (int64_t r = 0; r < rows; ++r) {
    copy_row(static_cast<const uint8_t*>(in) + r * row_bytes, cols * dtype.bits(),
             static_cast<uint8_t*>(canonical) + r * stride, detail::writable_row_bytes(dtype, cols, stride));
  }
}

}  // namespace bitgrad::canonical_layout
