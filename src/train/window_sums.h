// Sums the gradients of a window's microbatches in a fixed tree. docs/numerics.md section 6.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "bitgrad/nn/parameter.h"

namespace bitgrad::detail {

class WindowSums {
 public:
  // Moves the gradients of one microbatch out of the parameters, as a term of the tree. Uses up to log2(A) + 1 buffers
  // of the size of all gradients (memory kind grad).
  void add(const std::vector<Parameter*>& parameters);
  // Moves the window's sums back into the parameters' gradients.
  void finish(const std::vector<Parameter*>& parameters);
  // Drops the open window.
  void drop();

 private:
  struct Level {
    Tensor sum;
    bool full = false;
  };
  std::map<const Parameter*, std::vector<Level>> levels_;
  int64_t microbatches_ = 0;
};

}  // namespace bitgrad::detail
