// All elements of an idx file of any type.
#pragma once

#include <string>
#include <vector>

#include "bitgrad/base/file.h"

namespace bitgrad::data {

struct IdxValues {
  std::string type;            // e.g. uint8
  std::vector<int64_t> shape;  // 1 to 4 axes
  std::vector<float> values;   // float64 is rounded; int32 values must be exact in fp32
};
// Throws as read_idx_samples.
IdxValues read_idx_values(const std::string& path, InputFile& file);

}  // namespace bitgrad::data
