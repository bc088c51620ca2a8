// The sum of squares of all gradients, for the global norm. Block sums of a parameter are added in double, in order;
// then the sums of the parameters, in order. On a device other than the CPU the block sums arrive when its flags are
// read (kernels/flag.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace bitgrad::detail {

class SquareSums {
 public:
  // Starts the next parameter: later calls of add belong to it.
  void next();
  void add(float sum_of_squares);
  // To the parameter that the `index`-th call of next started.
  void add_to(size_t index, float sum_of_squares);
  size_t parameters() const { return parameters_.size(); }
  // Adds sum_squares of n elements x on the current device.
  void add(const float* x, int64_t n);
  // Drops the values but keeps the parameters: recorded work runs again and delivers new ones.
  void forget();
  // Call after errors were polled.
  double total() const;
  // Of the parameter that the `index`-th call of next started: its terms, and their sum.
  const std::vector<float>& terms(size_t index) const { return *parameters_.at(index); }
  double of_parameter(size_t index) const;

 private:
  using Blocks = std::vector<float>;
  std::vector<std::shared_ptr<Blocks>> parameters_;  // shared with flag callbacks
};

}  // namespace bitgrad::detail
