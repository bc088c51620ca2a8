// Sums the gradients of a window's microbatches in a fixed tree. docs/numerics.md section 6.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "bitgrad/nn/parameter.h"

namespace bitgrad::detail {

class WindowSums {
 public:
  // Moves the gradients of one microbatch out of the parameters, as a term of the tree. Uses a buffer of the size
  // of all gradients (memory kind grad) for each binary digit of the terms so far.
  void add(const std::vector<Parameter*>& parameters);
  // Moves the window's sum into a parameter's gradient; what the gradient holds, if anything, is the last term.
  void finish(Parameter& p);
  // The same for all, as the window ends. Changes nothing of those that finish has been called for.
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
