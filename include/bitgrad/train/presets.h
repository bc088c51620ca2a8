// Presets: networks that ship with bitgrad, which a configuration names by model.preset. docs/models.md.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace bitgrad {

struct ModelPreset {
  std::string name = {};                                       // "resnet20"
  std::string summary = {};                                    // the first line of the file's comment
  std::vector<std::pair<std::string, std::string>> keys = {};  // each with its default, "required" where it has none
  std::string text = {};                                       // the YAML file: keys, blocks, layers, quant, loss
};
// Those of presets/, sorted by name.
const std::vector<ModelPreset>& model_presets();

}  // namespace bitgrad
