// The matrices that rules of whole matrices take a weight for, and which rank is to update which (planned: today every
// rank updates all).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bitgrad/nn/parameter.h"

namespace bitgrad::detail {

// Rows of the matrices stacked in a weight: spec().matrices equal ones, else those of its reader, else one. Throws
// Error if its rows are not a multiple of spec().matrices.
std::vector<int64_t> stacked_rows(const Parameter& p);

// The rank that updates each of some matrices, given their costs: heaviest first to the rank with the least so far, the
// first of equals. A function of its arguments alone, so that all ranks agree. With more ranks than matrices some own
// none.
std::vector<int> owners_of(std::span<const int64_t> costs, int ranks);

}  // namespace bitgrad::detail
