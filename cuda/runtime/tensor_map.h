// The descriptor by which TMA copies (device/tma.h) address a matrix. Built on the host, passed to kernels by value.
#pragma once

#include <cstdint>

namespace bitgrad::cuda {

// The driver's CUtensorMap, opaque here. The emulation stores its own record in it.
struct alignas(128) TensorMap {
  uint64_t words[16] = {};
};

// Describes a matrix of bytes: `rows` rows of `columns` bytes, `stride` bytes apart. One copy moves `box_rows` rows of
// 128 bytes. The address must be a multiple of 16, the stride a multiple of 16 below 2^40, the sizes 1 to 2^32, and
// box_rows 1 to 256. Throws Error otherwise, or if the driver rejects the map.
TensorMap make_tensor_map(const void* data, int64_t columns, int64_t rows, int64_t stride, int box_rows);

namespace detail {
// Same without checks; implemented by the driver or the emulation.
TensorMap encode_tensor_map(const void* data, int64_t columns, int64_t rows, int64_t stride, int box_rows);
}  // namespace detail

}  // namespace bitgrad::cuda
