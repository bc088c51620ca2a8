// Byte-pair encoding: the merges of a word (Sennrich et al. 2016, arXiv:1508.07909).
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace bitgrad::data {

class BpeMerges {
 public:
  // Adds merges in order of rank; a duplicate pair keeps its first rank. Returns false for a duplicate.
  bool add(int32_t left, int32_t right, int32_t merged);
  int64_t size() const { return static_cast<int64_t>(merges_.size()); }
  // Repeatedly joins the adjacent pair with the lowest rank (the leftmost on ties) until none is left.
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
