// Communicators: how the ranks that train one model sum their gradients. docs/numerics.md section 6.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
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

// Summation in a fixed tree: terms 2i and 2i + 1 are added first, then those sums in the same way, level by level. A
// run of 2^k terms that starts at a multiple of 2^k is one subtree, so its sum may be computed elsewhere (another
// rank).

// Adds terms incrementally, holding at most log2(terms) + 1 partial sums. `T` is moved; an empty level holds T{}.
// `join(left, right)` returns left + right.
template <typename T, typename Join>
class TreeSum {
 public:
  explicit TreeSum(Join join) : join_(std::move(join)) {}

  void add(T term) {
    size_t level = 0;
    for (; (terms_ >> level) & 1; ++level) term = join_(std::exchange(levels_[level], T{}), std::move(term));
    if (level == levels_.size()) levels_.emplace_back();
    levels_[level] = std::move(term);
    ++terms_;
  }
  // Returns the sum of all terms and resets the object. Requires terms() > 0. Incomplete levels are joined starting
  // from the last terms.
  T finish() {
    T sum{};
    bool first = true;
    for (size_t level = 0; level < levels_.size(); ++level) {
      if (((terms_ >> level) & 1) == 0) continue;
      T part = std::exchange(levels_[level], T{});
      sum = first ? std::move(part) : join_(std::move(part), std::move(sum));
      first = false;
    }
    terms_ = 0;
    return sum;
  }
  int64_t terms() const { return terms_; }
  void clear() {
    levels_.clear();
    terms_ = 0;
  }

 private:
  Join join_;
  std::vector<T> levels_;
  int64_t terms_ = 0;
};

}  // namespace bitgrad
