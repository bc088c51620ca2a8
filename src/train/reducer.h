// Sums the gradients of a window over the ranks.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "optim/shards.h"
#include "train/train_state.h"

namespace bitgrad::detail {

// Those of large parameters travel to the owners of their rows while backward computes others (as in PyTorch's
// DistributedDataParallel, Li et al. 2020, arXiv 2006.15704, section 3.2.3): in the order in which rank 0 completed
// them in the window before, so that all ranks send the same whatever their batches reach. docs/numerics.md section 6.
class Reducer {
 public:
  explicit Reducer(TrainState& s) : s_(s) {}
  // Runs the backward pass of the last microbatch of this rank in the window.
  void run_last(const std::function<void()>& backward);
  // Ends the window: sums what is left; of a parameter whose rows have owners each rank gets its own rows
  // (Optimizer::set_ranks). Returns the sum of the weights of all microbatches in their order; `weights`: those of this
  // rank.
  double finish(const std::vector<double>& weights);
  // Forgets the window. Transfers have ended, or are cancelled.
  void drop();

 private:
  enum class Sent : uint8_t { kNo, kFilled, kZero };  // kZero: no microbatch of this rank has reached it
  void completed(size_t index);
  void send(size_t index);

  TrainState& s_;
  std::vector<size_t> order_;                                   // of s_.parameters; empty before the first window ends
  std::optional<std::chrono::steady_clock::time_point> since_;  // the sums of the window before
  // Of the present window.
  std::vector<size_t> completed_;
  std::vector<bool> complete_;
  std::vector<Sent> sent_;
  size_t next_ = 0;  // of order_
  std::optional<RowSums> sums_;
};

}  // namespace bitgrad::detail
