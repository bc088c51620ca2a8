// A data set restricted to its first samples.
#pragma once

#include <memory>

#include "bitgrad/data/dataset.h"

namespace bitgrad::data {

// Samples 0 .. limit-1 of `all`. Throws Error(kUsage) if the limit is below 1 or above the size of `all`.
std::unique_ptr<Dataset> first_samples(std::unique_ptr<Dataset> all, int64_t limit);

}  // namespace bitgrad::data
