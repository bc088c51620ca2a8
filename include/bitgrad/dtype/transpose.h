// Transposition of a matrix in canonical order on a device that is not the CPU: kernels bring it, tensors ask for it
// (transpose of tensor.h). On the CPU it is what layout `transposed` packs.
#pragma once

#include <cstdint>

namespace bitgrad {

struct TransposeArgs {
  int bits = 0;                // of an element
  int64_t rows = 0, cols = 0;  // of `in`
  const void* in = nullptr;
  int64_t in_stride = 0;  // bytes
  void* out = nullptr;    // [cols, rows], pad bits are zeroed
  int64_t out_stride = 0;
};
using TransposeFunction = void (*)(const TransposeArgs& args);
// On the current device. Throws Error(kDevice) where there is none.
void transpose_on_device(const TransposeArgs& args);
void register_device_transpose(TransposeFunction function);

}  // namespace bitgrad
