// The levels of a codebook dtype in ascending order, and the bounds between them.
#pragma once

#include "bitgrad/dtype/dtype.h"

namespace bitgrad::kernels::quantize_loops {

struct SortedLevels {
  std::vector<float> bounds;   // bounds[i]: the largest float that is at least as near to level i as to level i+1
  std::vector<uint8_t> codes;  // raw code of level i; of equal levels, the lowest raw code
  uint8_t zero = 0;            // raw code of the level nearest to 0
};
SortedLevels sort_levels(const DTypeInfo& info);

}  // namespace bitgrad::kernels::quantize_loops
