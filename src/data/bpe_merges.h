// Byte-pair encoding: the merges of a word (Sennrich et al. 2016, arXiv:1508.07909).
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace bitgrad::data {

class BpeMerges {
 public:
  // Merges are added in order of their rank; a pair that is there keeps its first one. False: it was there.
  bool add(int32_t left, int32_t right, int32_t merged);
  int64_t size() const { return static_cast<int64_t>(merges_.size()); }
  // Joins, as long as there is one, the pair of neighbours of the lowest rank, the leftmost of several.
  void apply(std::vector<int32_t>& word) const;

 private:
  struct Merge {
    int64_t rank;
    int32_t merged;
  };
  const Merge* find(int32_t left, int32_t right) const;
  std::unordered_map<uint64_t, Merge> merges_;
};

}  // namespace bitgrad::data
