// The gradients of a window's microbatches added in a fixed tree. docs/numerics.md section 6.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "bitgrad/dist/communicator.h"
#include "bitgrad/nn/parameter.h"

namespace bitgrad::detail {

class WindowSums {
 public:
  // The gradients of one microbatch leave the parameters and become a term of the tree. Up to log2(A) + 1 buffers of
  // the size of all gradients (memory kind grad) are in use.
  void add(const std::vector<Parameter*>& parameters);
  // The sums of the window are the parameters' gradients; with `ranks` those over all ranks, and divisor, what counts
  // in the window, likewise.
  void finish(const std::vector<Parameter*>& parameters, Communicator* ranks, int64_t& divisor);
  // Forgets the open window.
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
