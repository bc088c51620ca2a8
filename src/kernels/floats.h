// Arrays of floats in kernel contracts: fp32, or bf16, which is widened on load and rounded once to nearest even on
// store. fp64 only where a contract says so.
#pragma once

#include <cstdint>

#include "bitgrad/dtype/dtype.h"

namespace bitgrad::kernels {

struct FloatsIn {
  const void* data = nullptr;
  DType dtype = dtypes::fp32;

  constexpr FloatsIn() = default;
  constexpr FloatsIn(const float* x) : data(x) {}
  constexpr FloatsIn(const void* x, DType dtype_of_x) : data(x), dtype(dtype_of_x) {}

  bool bf16() const { return dtype == dtypes::bf16; }
  // For fp32 alone.
  const float* fp32() const { return static_cast<const float*>(data); }
  // The elements from i on, of fp32 or bf16.
  FloatsIn from(int64_t i) const {
    return bf16() ? FloatsIn(static_cast<const uint16_t*>(data) + i, dtype) : FloatsIn(fp32() + i);
  }
};

struct FloatsOut {
  void* data = nullptr;
  DType dtype = dtypes::fp32;

  constexpr FloatsOut() = default;
  constexpr FloatsOut(float* y) : data(y) {}
  constexpr FloatsOut(void* y, DType dtype_of_y) : data(y), dtype(dtype_of_y) {}

  bool bf16() const { return dtype == dtypes::bf16; }
  // For fp32 alone.
  float* fp32() const { return static_cast<float*>(data); }
  // The elements from i on, of fp32 or bf16.
  FloatsOut from(int64_t i) const {
    return bf16() ? FloatsOut(static_cast<uint16_t*>(data) + i, dtype) : FloatsOut(fp32() + i);
  }
};

}  // namespace bitgrad::kernels
