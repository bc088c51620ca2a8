// The first samples of a data set, as a data set.
#pragma once

#include <memory>

#include "bitgrad/data/dataset.h"

namespace bitgrad::data {

// Samples 0 .. limit-1 of `all`. Throws Error(kUsage) for a limit below 1, or above its size.
std::unique_ptr<Dataset> first_samples(std::unique_ptr<Dataset> all, int64_t limit);

}  // namespace bitgrad::data
