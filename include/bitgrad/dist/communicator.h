// Communicators: how the ranks that train one model sum their gradients. docs/numerics.md section 6.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// One of several ranks. All ranks must make the same calls in the same order, each rank from one thread at a time.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0;  // 0 .. size()-1
  virtual int64_t size() const = 0;
  // Replaces `values` (fp32 or bf16, contiguous, same shape on all ranks) by the sum over the ranks, with the same bits
  // on every rank: the tree of docs/numerics.md section 6, in rank order. Throws Error(kDevice) if another rank has
  // cancelled, or if shapes or dtypes differ.
  virtual void sum(const Tensor& values) = 0;
  // As above, for integers: counts of elements, flags. Same length on all ranks.
  virtual void sum(std::span<int64_t> counts) = 0;
  // This rank cannot continue: current and future calls of all other ranks throw Error(kDevice) with `reason`.
  virtual void cancel(const std::string& reason) = 0;
};

// Ranks that are threads of this process, each used by its own thread. Element i is rank i. Throws Error if size < 1.
std::vector<std::shared_ptr<Communicator>> make_thread_ranks(int64_t size);

}  // namespace bitgrad
