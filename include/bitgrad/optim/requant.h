// When masters become codes: every N microbatches, N a multiple of the A microbatches of an optimizer step.
#pragma once

#include <cstdint>

#include "bitgrad/base/error.h"

namespace bitgrad {

struct RequantPolicy {
  int64_t accumulate = 1;  // A
  int64_t every = 1;       // N
};

// A requantization that follows an optimizer step, as Parameter::requantize takes it.
struct RequantKey {
  uint64_t seed = 0;
  int64_t step = 0;  // optimizer steps done, the one before included
  friend bool operator==(const RequantKey&, const RequantKey&) = default;
};

// Throws Error that names the nearest legal N.
void check_requant(const RequantPolicy& policy);
// `microbatches` since the last time, on a step boundary.
inline bool requant_due(const RequantPolicy& policy, int64_t microbatches) { return microbatches >= policy.every; }

}  // namespace bitgrad
