// The named convolutions of bench_gemm --conv.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/ops/spatial.h"

namespace bitgrad::bench {

// Images [n,h,w,c], o outputs; kernel, stride and padding are equal on all sides.
struct ConvShape {
  std::string name;
  int64_t n, h, w, c, o, kernel, stride, pad;

  Conv2dOptions options() const;
  std::array<int64_t, 2> output() const { return conv2d_output(h, w, options()); }
  int64_t rows() const { return n * output()[0] * output()[1]; }
  int64_t k() const { return kernel * kernel * c; }
  double gmacs() const { return static_cast<double>(rows()) * static_cast<double>(o * k()) / 1e9; }
  std::string text() const;  // in the form that --shape accepts
};

// One shape per word n,h,w,c,o,kernel,stride,pad; any other word selects all shapes whose names start with it (empty:
// all). Throws Error.
std::vector<ConvShape> parse_conv_shapes(const std::vector<std::string>& words);

}  // namespace bitgrad::bench
