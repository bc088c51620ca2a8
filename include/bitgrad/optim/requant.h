// When masters are requantized: every N microbatches, where N is a multiple of the A microbatches of an optimizer step.
#pragma once

#include <cstdint>

#include "bitgrad/base/error.h"

namespace bitgrad {

struct RequantPolicy {
  int64_t accumulate = 1;  // A
  int64_t every = 1;       // N
};

// Identifies a requantization after an optimizer step; the arguments of Parameter::requantize.
struct RequantKey {
  uint64_t seed = 0;
  int64_t step = 0;  // completed optimizer steps, including the preceding one
  friend bool operator==(const RequantKey&, const RequantKey&) = default;
};

// Throws Error naming the nearest valid N if `every` is not a multiple of `accumulate`, or if either is below 1.
void check_requant(const RequantPolicy& policy);
// `microbatches`: number since the last requantization, at the end of an optimizer step.
inline bool requant_due(const RequantPolicy& policy, int64_t microbatches) { return microbatches >= policy.every; }

}  // namespace bitgrad
