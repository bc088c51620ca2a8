// Files that a data set names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/data/dataset.h"

namespace bitgrad::data {

// `path` under `root` (data.root; empty: the current folder), absolute paths as they are.
std::string data_path(const std::string& root, const std::string& path);

// The bytes of the file at `path`, the value of `key`. Error(kData) that begins with `where` for a folder in the place
// of `expected`, or a file that is missing: names the twin with or without .gz where that exists.
std::vector<uint8_t> read_data_file(std::string_view where, const DatasetSpec& spec, const std::string& key,
                                    const std::string& path, std::string_view expected);

}  // namespace bitgrad::data
