// How many random shapes a test draws.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "support/sanitized.h"

namespace bitgrad::test {

// BITGRAD_TEST_SHAPES, otherwise `usual`, of which a sanitized build draws at most 80.
inline int shape_count(int usual) {
  const char* text = std::getenv("BITGRAD_TEST_SHAPES");
  if (text != nullptr) return std::max(1, std::atoi(text));
  return kSanitized ? std::min(usual, 80) : usual;
}

// Whether as many are drawn as the test was written for; with fewer, not every kind need be among them.
inline bool all_shapes(int usual) { return shape_count(usual) >= usual; }

}  // namespace bitgrad::test
