// Presets: networks that ship with bitgrad, selected by model.preset. docs/models.md.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace bitgrad {

struct ModelPreset {
  std::string name = {};                                       // e.g. "resnet20"
  std::string summary = {};                                    // first line of the file's comment
  std::vector<std::pair<std::string, std::string>> keys = {};  // each with its default, or "required"
  std::string text = {};                                       // the YAML file: keys, blocks, layers, quant, loss
};
// All presets of presets/, sorted by name.
const std::vector<ModelPreset>& model_presets();

}  // namespace bitgrad
