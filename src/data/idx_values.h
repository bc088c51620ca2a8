// All elements of an idx file, whatever they are.
#pragma once

#include <string>
#include <vector>

#include "bitgrad/base/file.h"

namespace bitgrad::data {

struct IdxValues {
  std::string type;            // such as uint8
  std::vector<int64_t> shape;  // 1 to 4 axes
  std::vector<float> values;   // float64 is rounded; of int32 only what fp32 holds
};
// Errors as read_idx_samples.
IdxValues read_idx_values(const std::string& path, InputFile& file);

}  // namespace bitgrad::data
