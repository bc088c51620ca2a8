// Random operands of bench_gemm.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "bitgrad/dtype/dtype.h"
#include "bitgrad/dtype/layout.h"
#include "shared/bytes.h"

namespace bitgrad::bench {

// A random [rows, cols] matrix in canonical layout.
struct Matrix {
  DType dtype;
  int64_t rows, cols, stride;
  Bytes bytes;
  std::vector<float> scales, offsets;
  std::vector<int32_t> zeros;
  ScaleMap map;  // without parameters until some are added

  Matrix(DType type, int64_t r, int64_t c, std::mt19937& rng);
  // Adds scales for groups of `group` along k (0: one per free index), and on request real offsets.
  void add_scales(bool k_major, int64_t group, bool with_offsets, std::mt19937& rng);
  // Adds a zero point per free index.
  void add_zeros(bool k_major, std::mt19937& rng);
};

// The same codes in the layout that a kernel reads; nullptr if the layout does not support the dtype.
std::unique_ptr<Bytes> packed(Matrix& x, Layout layout);

}  // namespace bitgrad::bench
