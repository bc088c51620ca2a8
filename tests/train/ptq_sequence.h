// Matrices as scripts/gptq_golden.py and scripts/ptq_golden.py draw them.
#pragma once

#include "tools/ptq/products.h"

namespace bitgrad::test {

struct Sequence {
  uint32_t state;
  detail::Matrix matrix(int64_t rows, int64_t cols) {
    detail::Matrix m(rows, cols);
    for (double& v : m.v) {
      state = state * 1664525 + 1013904223;
      v = static_cast<double>((state >> 24) % 17) - 8;
    }
    return m;
  }
};

}  // namespace bitgrad::test
