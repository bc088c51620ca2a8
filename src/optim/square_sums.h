// The sum of squares of all gradients, for the global norm: sums of one parameter in double, block after block, and
// then those of the parameters, in their order. On a device other than the CPU the sums of blocks come when its flags
// are read (kernels/flag.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace bitgrad::detail {

class SquareSums {
 public:
  // What is added from now on belongs to the next parameter.
  void next();
  void add(float sum_of_squares);
  // sum_squares of n numbers x of the current device.
  void add(const float* x, int64_t n);
  // Recorded work is done again: its numbers come anew.
  void forget();
  // After the errors were polled.
  double total() const;

 private:
  using Blocks = std::vector<float>;
  std::vector<std::shared_ptr<Blocks>> parameters_;  // shared with the flags
};

}  // namespace bitgrad::detail
