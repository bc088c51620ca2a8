// Scales of a matrix as kernels read them: pointers plus an index rule.
#pragma once

#include <cstdint>

namespace bitgrad {

// Maps the codes of a quantized [rows, cols] matrix to values: value = s * (q - z), or s * q + m; value = q if all
// pointers are null. The parameters of element (r, c) are at (r / row_group) * row_step + (c / col_group) * col_step.
struct ScaleMap {
  const float* scale = nullptr;
  const int32_t* zero = nullptr;  // integer zero points, indexed as scale
  const float* offset = nullptr;  // real offsets, indexed as scale
  int64_t row_step = 0, col_step = 0;
  int64_t row_group = 1, col_group = 1;

  int64_t index(int64_t r, int64_t c) const { return (r / row_group) * row_step + (c / col_group) * col_step; }
  bool trivial() const { return scale == nullptr && zero == nullptr && offset == nullptr; }
  bool per_tensor() const { return row_step == 0 && col_step == 0; }
  bool per_row() const { return row_step == 1 && row_group == 1 && col_step == 0; }
  bool per_column() const { return col_step == 1 && col_group == 1 && row_step == 0; }
};

}  // namespace bitgrad
