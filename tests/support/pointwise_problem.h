// Random problems of family pointwise: sizes of four axes, and arrays whose axes are permuted, padded or repeated.
#pragma once

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "kernels/pointwise.h"

namespace bitgrad::test {

struct PointwiseProblem {
  std::array<int64_t, kernels::kPointwiseAxes> size = {};
  struct Array {
    std::array<int64_t, kernels::kPointwiseAxes> step = {};
    int64_t elements = 0;  // number of elements that its indices may address
    int64_t at(const std::array<int64_t, kernels::kPointwiseAxes>& i) const {
      int64_t sum = 0;
      for (size_t k = 0; k < i.size(); ++k) sum += i[k] * step[k];
      return sum;
    }
  };
  std::array<Array, 3> arrays = {};  // a, b, y

  int64_t count() const { return size[0] * size[1] * size[2] * size[3]; }
  // Calls body(index) for every element.
  template <typename Body>
  void each(Body&& body) const {
    std::array<int64_t, kernels::kPointwiseAxes> i = {};
    for (i[0] = 0; i[0] < size[0]; ++i[0])
      for (i[1] = 0; i[1] < size[1]; ++i[1])
        for (i[2] = 0; i[2] < size[2]; ++i[2])
          for (i[3] = 0; i[3] < size[3]; ++i[3]) body(i);
  }
};

// An array with its axes in random order (outermost first if `plain`), possibly with gaps, possibly with repeats.
inline PointwiseProblem::Array drawn_array(const std::array<int64_t, kernels::kPointwiseAxes>& size,
                                           std::mt19937& random, bool plain, bool repeats) {
  std::array<size_t, kernels::kPointwiseAxes> order = {3, 2, 1, 0};  // innermost first
  if (!plain) std::shuffle(order.begin(), order.end(), random);
  PointwiseProblem::Array array;
  int64_t step = 1;
  for (const size_t axis : order) {
    if (repeats && random() % 3 == 0) continue;
    array.step[axis] = step;
    step *= std::max<int64_t>(size[axis], 1) + (plain ? 0 : static_cast<int64_t>(random() % 3 == 0));
  }
  array.elements = step + 1;
  return array;
}

inline PointwiseProblem drawn_problem(uint32_t seed) {
  std::mt19937 random(seed);
  PointwiseProblem p;
  for (int64_t& n : p.size) n = 1 + static_cast<int64_t>(random() % 6);
  static constexpr int64_t kEdges[] = {1, 2, 15, 16, 17, 33, 63, 65, 70};
  p.size[random() % 4] = kEdges[random() % std::size(kEdges)];
  if (random() % 8 == 0)
    p.size = {1, 1, 1 + static_cast<int64_t>(random() % 2), 1023 + static_cast<int64_t>(random() % 4)};
  if (random() % 40 == 0) p.size = {1, 1, 1, 16383 + static_cast<int64_t>(random() % 1100)};
  if (random() % 30 == 0) p.size[random() % 4] = 0;
  for (size_t k = 0; k < 3; ++k) p.arrays[k] = drawn_array(p.size, random, random() % 2 == 0, k < 2);
  return p;
}

}  // namespace bitgrad::test
