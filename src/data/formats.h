// The factories of the built-in data set formats.
#pragma once

#include <memory>

#include "bitgrad/data/dataset.h"

namespace bitgrad::data {

#define BITGRAD_DATASET(name, factory, required, optional, ids, summary) \
  std::unique_ptr<Dataset> factory(const DatasetSpec& spec);
#include "data/datasets.inc"
#undef BITGRAD_DATASET

}  // namespace bitgrad::data
