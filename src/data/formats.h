// Factories of the built-in data set formats, and the keys of each alone.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/data/dataset.h"

namespace bitgrad::data {

inline std::vector<Key> no_keys() { return {}; }
#define BITGRAD_DATASET(name, factory, required, optional, ids, keys, summary, ...) \
  std::unique_ptr<Dataset> factory(const DatasetSpec& spec);                        \
  std::vector<Key> keys();
#include "data/datasets.inc"
#undef BITGRAD_DATASET

// Number of different ids, with the same meaning in every format whose samples may be ids.
Key vocabulary_key();
// The id between documents, with the same meaning in the formats of texts.
Key end_key();

// The model's tokenizer (spec.of_model), from which data.tokenizer must not differ: a file, if it is there, or the name
// of a kind. Throws Error(kData).
std::shared_ptr<const Tokenizer> tokenizer_of_model(std::string_view where, const DatasetSpec& spec);

// Begin and end of a split within all bytes or ids of a text: train comes first, then valid (with a valid_fraction),
// then test.
std::pair<int64_t, int64_t> text_range(const DatasetSpec& spec, int64_t size);
// Rejects keys that no text format supports.
void check_text_keys(std::string_view where, const DatasetSpec& spec);

}  // namespace bitgrad::data
