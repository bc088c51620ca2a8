// model.preset: a network from a file of its own, with keys; either shipped (presets/) or a user's.
//
//   keys: {classes: 10, width: 64}     # each with its default or required
//   blocks: {...}                      # as model.blocks
//   layers: [{conv2d: {out: $width}}]  # as model.layers
//   quant: {...}                       # keys of quant and the loss that the configuration does not set
//   loss: squared_hinge
#pragma once

#include <string>

#include "config/source.h"
#include "config/tree.h"

namespace bitgrad::config {

// The text of a preset, for findings of later stages.
struct PresetText {
  std::string context = {};  // of expand_blocks: "preset 'cnv', used at 4:18"
  std::string name = {};     // shown before ":line:col"
  std::string text = {};
};
// Replaces model.preset and model.keys by the preset's blocks and layers, and adds its quant and loss where the
// configuration has none. `name` is that of the configuration: relative paths start at its folder. Runs before
// expand_blocks; reports errors. Returns empty texts if there is no preset.
PresetText expand_preset(Node& root, const std::string& name, const ConfigSource& source, Report& report);

}  // namespace bitgrad::config
