// Communicators: how the ranks that train one model add their gradients. docs/numerics.md section 6.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// One rank of several. All ranks make the same calls in the same order, each rank from one thread.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0;  // 0 .. size()-1
  virtual int64_t size() const = 0;
  // `values` (fp32 or bf16, contiguous, the same shape everywhere) becomes the sum over the ranks, with the same bits
  // on every rank: the tree of docs/numerics.md section 6 over the ranks in their order. Throws Error(kDevice) when
  // another rank has cancelled, or its tensor differs in shape or dtype.
  virtual void sum(const Tensor& values) = 0;
  // The same for whole numbers: counts of elements, flags.
  virtual void sum(std::span<int64_t> counts) = 0;
  // This rank cannot go on: the calls of all others, running ones too, throw Error(kDevice) that holds the reason.
  virtual void cancel(const std::string& reason) = 0;
};

// Ranks of one process: each is used by a thread of its own. Element i is rank i.
std::vector<std::shared_ptr<Communicator>> make_thread_ranks(int64_t size);

}  // namespace bitgrad
