// The factories of the built-in data set formats.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
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
std::vector<Key> csv_keys();
std::vector<Key> image_folder_keys();

// Begin and end of a split among all bytes or ids of a text: the first are split train, those after them split valid
// (with a valid_fraction), the last split test.
std::pair<int64_t, int64_t> text_range(const DatasetSpec& spec, int64_t size);
// What all formats of text refuse.
void check_text_keys(std::string_view where, const DatasetSpec& spec);

}  // namespace bitgrad::data
