// The record by which TMA copies (device/tma.h) find a matrix. Made on the host, passed to kernels by value.
#pragma once

#include <cstdint>

namespace bitgrad::cuda {

// CUtensorMap of the driver, opaque here; the emulation keeps its own record in it.
struct alignas(64) TensorMap {
  uint64_t words[16] = {};
};

// Matrix of bytes: `columns` bytes in each of `rows` rows, `stride` bytes apart; a copy moves `box_rows` rows of 128
// bytes. Needs an address that is a multiple of 16, a stride that is a multiple of 16 and below 2^40, sizes of 1 to
// 2^32 and 1 to 256 rows in a box; throws Error otherwise, or when the driver refuses.
TensorMap make_tensor_map(const void* data, int64_t columns, int64_t rows, int64_t stride, int box_rows);

namespace detail {
// The same without checks: of the driver or of the emulation.
TensorMap encode_tensor_map(const void* data, int64_t columns, int64_t rows, int64_t stride, int box_rows);
}  // namespace detail

}  // namespace bitgrad::cuda
