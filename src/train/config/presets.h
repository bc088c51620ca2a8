// model.preset: a network from a file of its own, with keys; shipped (presets/), or a user's.
//
//   keys: {classes: 10, width: 64}     # each with its default or required
//   blocks: {...}                      # as model.blocks
//   layers: [{conv2d: {out: $width}}]  # as model.layers
//   quant: {...}                       # keys of quant and the loss that the configuration does not set
//   loss: squared_hinge
#pragma once

#include <string>

#include "train/config/source.h"
#include "train/config/tree.h"

namespace bitgrad::config {

// The file of a preset, for findings of later stages.
struct PresetText {
  std::string context = {};  // of expand_blocks: "preset 'cnv', used at 4:18"
  std::string name = {};     // before ":line:col"
  std::string text = {};
};
// Puts the preset's blocks and layers in the place of model.preset and model.keys, and its quant and loss where the
// configuration has none. `name`: of the configuration, whose folder is where relative paths start. Runs before
// expand_blocks; reports what is wrong. All empty: there is no preset.
PresetText expand_preset(Node& root, const std::string& name, const ConfigSource& source, Report& report);

}  // namespace bitgrad::config
