// The axes of a strided loop. Axes that are contiguous with each other in every array are merged.
#pragma once

#include <cstdint>

#include "kernels/pointwise.h"

namespace bitgrad::kernels {

template <int kArrays>
struct Walk {
  int64_t size[kPointwiseAxes] = {1, 1, 1, 1};  // the last is the inner axis
  int64_t step[kArrays][kPointwiseAxes] = {};

  int64_t inner() const { return size[kPointwiseAxes - 1]; }
  int64_t outer() const { return size[0] * size[1] * size[2]; }
  int64_t inner_step(int array) const { return step[array][kPointwiseAxes - 1]; }
};

// Finds where the inner axis begins in each array for consecutive outer indices, without a division per index.
template <int kArrays>
class WalkCursor {
 public:
  WalkCursor(const Walk<kArrays>& walk, int64_t r) : walk_(walk) {
    const int64_t q = r / walk.size[2];
    at_[2] = r - q * walk.size[2];
    at_[1] = q % walk.size[1];
    at_[0] = q / walk.size[1];
    for (int k = 0; k < kArrays; ++k)
      start_[k] = at_[0] * walk.step[k][0] + at_[1] * walk.step[k][1] + at_[2] * walk.step[k][2];
  }
  int64_t start(int array) const { return start_[array]; }
  void next() {
    for (int axis = 2; axis >= 0; --axis) {
      for (int k = 0; k < kArrays; ++k) start_[k] += walk_.step[k][axis];
      if (++at_[axis] < walk_.size[axis]) return;
      for (int k = 0; k < kArrays; ++k) start_[k] -= walk_.step[k][axis] * walk_.size[axis];
      at_[axis] = 0;
    }
  }

 private:
  const Walk<kArrays>& walk_;
  int64_t at_[3] = {}, start_[kArrays] = {};
};

// steps[array]: strides of an array along the axes of `size`.
template <int kArrays>
Walk<kArrays> merged_walk(const int64_t* size, const int64_t* const (&steps)[kArrays]) {
  Walk<kArrays> walk;
  int at = kPointwiseAxes;  // axes [at, end) have been filled
  for (int axis = kPointwiseAxes - 1; axis >= 0; --axis) {
    if (size[axis] == 1) continue;
    bool joins = at < kPointwiseAxes;
    for (int k = 0; joins && k < kArrays; ++k) joins = steps[k][axis] == walk.step[k][at] * walk.size[at];
    if (joins) {
      walk.size[at] *= size[axis];
      continue;
    }
    --at;
    walk.size[at] = size[axis];
    for (int k = 0; k < kArrays; ++k) walk.step[k][at] = steps[k][axis];
  }
  return walk;
}

}  // namespace bitgrad::kernels
