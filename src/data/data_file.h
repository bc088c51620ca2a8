// Opens files that a data set refers to.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bitgrad/base/file.h"
#include "bitgrad/data/dataset.h"

namespace bitgrad::data {

// Resolves `path` relative to `root` (data.root; empty means the current folder); absolute paths are unchanged.
std::string data_path(const std::string& root, const std::string& path);

// Opens the file at `path`, the value of `key`. Throws Error(kData) that begins with `where` if the path is a folder
// (the message says that `expected` was expected), missing (suggests the same name with or without .gz if that exists),
// or not a regular file.
std::unique_ptr<InputFile> open_data_file(std::string_view where, const DatasetSpec& spec, const std::string& key,
                                          const std::string& path, std::string_view expected);

// Warns of `count` of the `size` bytes of a text at `path` that no text has (is_control_byte), if there are any.
void warn_of_control_bytes(const std::string& path, int64_t count, int64_t size);

// Names of classes beside packed pictures: the lines of NAME.classes.txt of `bitgrad data pack`, next to the file of
// labels, NAME.labels.npy. Empty if that is another file, or there are no names.
std::vector<std::string> packed_class_names(const std::string& labels);

}  // namespace bitgrad::data
