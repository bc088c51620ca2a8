// Samples of data sets as pictures, for reports.
#pragma once

#include <cstdint>
#include <string>

#include "bitgrad/data/dataset.h"

namespace bitgrad::detail {

// Sample `index` as a data URI with a PNG of at most 64 pixels per side; empty if the sample is no image. Bytes are
// used as stored; other values are scaled from their minimum (black) to their maximum (white).
std::string picture_of(const Dataset& data, int64_t index);

}  // namespace bitgrad::detail
