// Summation in a fixed tree: terms 2i and 2i + 1 are added first, then those sums in the same way, level by level. A
// run of 2^k terms that starts at a multiple of 2^k is one subtree, so its sum may be computed elsewhere (another
// rank).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace bitgrad {

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
