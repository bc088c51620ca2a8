// Samples of data sets as pictures, for reports.
#pragma once

#include <cstdint>
#include <string>

#include "bitgrad/data/dataset.h"

namespace bitgrad::detail {

// Sample `index` as a PNG of at most 64 pixels a side in a data URI; empty where it is no picture. Bytes as the file
// has them, other values from their smallest (black) to their largest.
std::string picture_of(const Dataset& data, int64_t index);

}  // namespace bitgrad::detail
