// The JSON header of a safetensors file.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/io/safetensors.h"

namespace bitgrad::safetensors {

struct Header {
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsEntry> entries;  // in the order of the text; offsets are not yet compared with each other
};

// Accepts exactly the format: no duplicate or unknown keys, no other nesting, whole non-negative numbers, known dtypes,
// and byte ranges that agree with dtype and shape. Throws Error(kData) that names `path` and the tensor or byte.
Header parse_header(std::string_view json, const std::string& path);

}  // namespace bitgrad::safetensors
