// Transposition of a canonical matrix on a device other than the CPU. Device kernels register it; transpose (tensor.h)
// calls it. On the CPU, packing layout `transposed` does the same.
#pragma once

#include <cstdint>

namespace bitgrad {

struct TransposeArgs {
  int bits = 0;                // per element
  int64_t rows = 0, cols = 0;  // of `in`
  const void* in = nullptr;
  int64_t in_stride = 0;  // bytes
  void* out = nullptr;    // [cols, rows]; pad bits are zeroed
  int64_t out_stride = 0;
};
using TransposeFunction = void (*)(const TransposeArgs& args);
// Runs on the current device. Throws Error(kDevice) if it registered no implementation.
void transpose_on_device(const TransposeArgs& args);
void register_device_transpose(TransposeFunction function);

}  // namespace bitgrad
