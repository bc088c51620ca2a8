// tests/golden/torch_conv.json and the inputs of its cases; see scripts/torch_conv_golden.py.
#pragma once

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "bitgrad/base/json.h"
#include "bitgrad/tensor/tensor.h"

#include "support/paths.h"

namespace bitgrad::test {

inline Json torch_conv_golden() {
  std::ifstream in(source_path("tests/golden/torch_conv.json"));
  return Json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
}

template <typename Rule>
std::vector<double> torch_draws(uint64_t seed, int64_t count, Rule rule) {
  std::vector<double> out;
  for (int64_t i = 0; i < count; ++i) {
    seed = 6364136223846793005u * seed + 1442695040888963407u;
    out.push_back(rule(seed));
  }
  return out;
}
inline Tensor torch_eighths(uint64_t seed, const Shape& shape, DType dtype) {
  const auto rule = [](uint64_t s) { return (static_cast<double>((s >> 33) % 17) - 8) / 8; };
  return Tensor::from_elements(shape, dtype, torch_draws(seed, shape.numel(), rule));
}
// The signs of torch_eighths, as -1 or 1 (0 gives 1).
inline Tensor torch_signs(uint64_t seed, const Shape& shape, DType dtype) {
  const auto rule = [](uint64_t s) { return (s >> 33) % 17 >= 8 ? 1.0 : -1.0; };
  return Tensor::from_elements(shape, dtype, torch_draws(seed, shape.numel(), rule));
}
inline Tensor torch_units(uint64_t seed, const Shape& shape, double factor = 1) {
  const auto rule = [&](uint64_t s) { return (static_cast<double>(s >> 40) - 0x1p23) * 0x1p-23 * factor; };
  return Tensor::from_elements(shape, dtypes::fp32, torch_draws(seed, shape.numel(), rule));
}
inline Tensor torch_levels(uint64_t seed, const Shape& shape) {
  const auto rule = [](uint64_t s) { return (static_cast<double>((s >> 33) % 255) - 127) / 128; };
  return Tensor::from_elements(shape, dtypes::fp32, torch_draws(seed, shape.numel(), rule));
}

}  // namespace bitgrad::test
