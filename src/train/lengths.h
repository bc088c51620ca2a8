// Lengths of a run in microbatches.
#pragma once

#include <algorithm>
#include <cstdint>

namespace bitgrad::detail {

// Numbers up to this are exact in a double too; no run gets there.
inline constexpr int64_t kMostMicrobatches = int64_t{1} << 53;

// count * each, at most kMostMicrobatches + 1: more is told apart from no overflow. Both at least 0.
inline int64_t microbatches_of(int64_t count, int64_t each) {
  if (each > 0 && count > kMostMicrobatches / each) return kMostMicrobatches + 1;
  return count * each;
}

}  // namespace bitgrad::detail
