// model.rename and model.ignore: the name of a tensor in a file, and its element order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bitgrad {

// One entry of model.rename. `parameter` is a parameter path of this model (layers.0.weight), a glob whose * correspond
// in order to the * of `name`, or the path of a layer, whose parameters are then named <name>.<parameter>.
struct WeightName {
  std::string parameter = {};
  std::string name = {};          // in the file; the other fields are for files of other programs
  bool transpose = false;         // the file stores the matrix as [inputs, outputs]
  bool ohwi = false;              // the file stores the convolution as [O, h, w, C] instead of [O, C, h, w]
  std::vector<int64_t> chw = {};  // the file's inputs are flattened images [c, h, w]; here they are [h, w, c]
  friend bool operator==(const WeightName&, const WeightName&) = default;
};
// How names of a file map to the parameters and buffers of a model, for files of bitgrad and of other programs.
struct WeightMap {
  std::vector<WeightName> names = {};  // if several match a parameter, the last one wins
  // Globs on names of the file that are left out. A parameter or buffer that would be read from one of these names
  // keeps its own initial value.
  std::vector<std::string> ignore = {};
  bool empty() const { return names.empty() && ignore.empty(); }
};
// Parse and format the value of an entry: "fc1.weight", "fc1.weight transpose", "conv.weight ohwi", "fc.weight
// chw(64,4,4)". Parsing throws Error for unknown words, more * in the name than in the path, and an empty name or path.
WeightName parse_weight_name(const std::string& parameter, const std::string& value);
std::string value_text(const WeightName& name);

}  // namespace bitgrad
