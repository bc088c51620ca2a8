// Files that a data set names.
#pragma once

#include <memory>
#include <string>

#include "bitgrad/base/file.h"
#include "bitgrad/data/dataset.h"

namespace bitgrad::data {

// `path` under `root` (data.root; empty: the current folder), absolute paths as they are.
std::string data_path(const std::string& root, const std::string& path);

// Opens the file at `path`, the value of `key`. Error(kData) that begins with `where` for a folder in the place of
// `expected`, a file that is missing (names the twin with or without .gz where that exists), or no regular file.
std::unique_ptr<InputFile> open_data_file(std::string_view where, const DatasetSpec& spec, const std::string& key,
                                          const std::string& path, std::string_view expected);

}  // namespace bitgrad::data
