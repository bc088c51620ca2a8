// A line of model.rename: what a tensor of another program's file is called, and how its elements are ordered.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bitgrad {

// One line of model.rename. `parameter`: a path of this model (layers.0.weight), a glob whose * stand for the * of
// `name` in order, or the path of a layer, whose parameters then have the names <name>.<parameter>.
struct WeightName {
  std::string parameter = {};
  std::string name = {};          // in the file
  bool transpose = false;         // the file has the matrix as [inputs, outputs]
  bool ohwi = false;              // a convolution is [O, h, w, C] there, not [O, C, h, w]
  std::vector<int64_t> chw = {};  // its inputs are the elements of images [c, h, w] in this order, here [h, w, c]
  friend bool operator==(const WeightName&, const WeightName&) = default;
};
// The value of a line: "fc1.weight", "fc1.weight transpose", "conv.weight ohwi", "fc.weight chw(64,4,4)"; and back.
// Throws Error for other words, more * in the name than in the path, and an empty one of the two.
WeightName parse_weight_name(const std::string& parameter, const std::string& value);
std::string value_text(const WeightName& name);

}  // namespace bitgrad
