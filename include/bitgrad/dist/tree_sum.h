// A fixed tree of sums: terms 2i and 2i + 1 are added first, then those sums in the same manner, level by level. A run
// of terms that begins at a multiple of its own length, a power of two, is one subtree, so that its sum may be made
// elsewhere: on another rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace bitgrad {

// Fills in sums of as many levels as there are terms to add: at most log2(terms) + 1 are held. `T` is moved; a level
// that holds none has T{}. `join(left, right)` gives left + right.
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
  // The sum of all terms, which are forgotten; terms() > 0. Levels that are not full are joined from the last terms on.
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
