// The factories of the built-in data set formats.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "bitgrad/data/dataset.h"

namespace bitgrad::data {

#define BITGRAD_DATASET(name, factory, required, optional, ids, keys, summary) \
  std::unique_ptr<Dataset> factory(const DatasetSpec& spec);
#include "data/datasets.inc"
#undef BITGRAD_DATASET

// Keys of a format's own.
inline std::vector<Key> no_keys() { return {}; }
std::vector<Key> tokens_keys();

// What all formats of text refuse.
void check_text_keys(std::string_view where, const DatasetSpec& spec);

}  // namespace bitgrad::data
