// Lengths of a run in microbatches.
#pragma once

#include <algorithm>
#include <cstdint>

namespace bitgrad::detail {

// Every integer up to this is exact in a double; no run gets that far.
inline constexpr int64_t kMostMicrobatches = int64_t{1} << 53;

// count * each (both >= 0), or kMostMicrobatches + 1 if it exceeds kMostMicrobatches, so that it cannot overflow.
inline int64_t microbatches_of(int64_t count, int64_t each) {
  if (each > 0 && count > kMostMicrobatches / each) return kMostMicrobatches + 1;
  return count * each;
}

}  // namespace bitgrad::detail
