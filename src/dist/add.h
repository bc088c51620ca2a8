// Addition of gradients.
#pragma once

#include "bitgrad/tensor/tensor.h"

namespace bitgrad::detail {

// Bytes of devices that ranks sum at a time. A test sets it lower.
inline int64_t device_bucket_bytes = int64_t{64} << 20;

// into = left + into: n values, fp32 or bf16 (added in fp32, rounded once to nearest even), on the current device.
void add_left(DType dtype, int64_t n, const void* left, void* into);
// The same for contiguous tensors of one shape and dtype.
inline void add_left(const Tensor& left, const Tensor& into) {
  add_left(into.dtype(), into.numel(), left.data(), into.data());
}

}  // namespace bitgrad::detail
