// Applies merges with a heap of candidates: O(n log n) for a word of n ids. Stale candidates, whose pair no longer
// exists, are dropped when they are popped.
#include "data/bpe_file.h"

#include <cstddef>
#include <queue>
#include <tuple>

namespace bitgrad::data {
namespace {

constexpr uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

struct Candidate {
  int64_t rank;
  size_t at;  // position of the left id
  uint64_t pair;
  int32_t merged;
  bool operator>(const Candidate& other) const { return std::tie(rank, at) > std::tie(other.rank, other.at); }
};

}  // namespace

bool BpeMerges::add(int32_t left, int32_t right, int32_t merged) {
  return merges_.try_emplace(pair_key(left, right), Merge{size(), merged}).second;
}

const BpeMerges::Merge* BpeMerges::find(int32_t left, int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BpeMerges::apply(std::vector<int32_t>& word) const {
  constexpr int32_t kGone = -1;
  const size_t n = word.size();
  if (n < 2) return;
  std::vector<size_t> next(n), before(n);  // n: no neighbor
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto consider = [&](size_t left) {
    const size_t right = left < n ? next[left] : n;
    if (right >= n) return;
    if (const Merge* const merge = find(word[left], word[right]))
      candidates.push({merge->rank, left, pair_key(word[left], word[right]), merge->merged});
  };
  for (size_t i = 0; i < n; ++i) {
    next[i] = i + 1;
    before[i] = i == 0 ? n : i - 1;
  }
  for (size_t i = 0; i < n; ++i) consider(i);
  while (!candidates.empty()) {
    const Candidate top = candidates.top();
    candidates.pop();
    const size_t left = top.at, right = next[left];
    if (word[left] == kGone || right >= n || pair_key(word[left], word[right]) != top.pair) continue;
    word[left] = top.merged;
    word[right] = kGone;
    next[left] = next[right];
    if (next[right] < n) before[next[right]] = left;
    consider(before[left]);
    consider(left);
  }
  std::erase(word, kGone);
}

}  // namespace bitgrad::data
