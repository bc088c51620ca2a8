// The steps of reading a configuration, in the order in which parse_config takes them; then bind.h.
#pragma once

#include <string>
#include <vector>

#include "config/schema.h"

namespace bitgrad::config {

// YAML text -> tree (yaml.cpp, the only user of yaml-cpp).

// Reads one document. Bad bytes, broken syntax, anchors, aliases, tags, merge keys, keys that are not words, a second
// document and texts beyond the limits of source.h are added to the report; then the tree must not be used (returns
// false). An empty text gives a null node.
bool read_yaml(const SourceText& source, Report& report, Node& tree);

// Overrides of the command line are applied before the tree is checked, so that the schema applies to them as it does
// to the file.

// "a.b=value" sets, "a.0.b=value" sets in an item of a list, "~a.b" removes (back to the default). What is set gets
// marks that name the argument.
void apply_overrides(Node& root, const std::vector<std::string>& overrides, Report& report);

// Key `plugins`: libraries are loaded before the rest is checked, because their registrations add keys.

// Loads the libraries that the tree names and returns their paths; reports those that cannot be loaded, at their place.
// `name` is that of the file: paths are relative to its folder, those of the command line to the current folder. Loads
// nothing from a list that is malformed, which the schema reports.
std::vector<std::string> load_plugins(const Node& root, const std::string& name, const ConfigSource& source,
                                      Report& report);

// data.root as the config.yaml of a run says it, which nothing else of that file decides; empty if it cannot be read.
// Loads nothing, and throws ConfigError that names the plugins that are not loaded.
std::string recorded_root(const std::string& path);

// model.preset: a network from a file of its own, with keys; either shipped (presets/) or a user's.
//
//   keys: {classes: 10, width: 64}     # each with its default or required
//   blocks: {...}                      # as model.blocks
//   layers: [{conv2d: {out: $width}}]  # as model.layers
//   quant: {...}                       # keys of quant and the loss that the configuration does not set
//   loss: squared_hinge

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

// model.blocks: named lists of layers, which are used like a kind of layer.
//
//   blocks:
//     unit: {keys: {c: required, s: 1}, layers: [{linear: {out: $c}}, {relu: {}}]}
//   layers: [{unit: {c: 64}}]

// Replaces each use of a block by {sequence: {layers: ...}}, and each $key by the argument or the block's default.
// Nodes from a block keep the marks of its definition and record where it is used (Node::block). Blocks may use others,
// but not themselves. Runs before the schema is checked; reports errors in blocks and uses. `context`: where all of
// them come from, e.g. "preset 'cnv', used at 4:18"; empty: the configuration.
void expand_blocks(Node& root, Report& report, const std::string& context = {});
// Names of blocks, in the order of the text.
std::vector<std::string> block_names(const Node& root);

// The registry's checks: unknown, duplicate, missing, mistyped and out-of-range keys, and keys that do not match their
// selector.

// Sets Node::value, bad and suspects in the whole tree, and reports errors.
void validate(Node& root, Report& report);

// Whether the node at `key` of `map` (nullptr: an absent map), or its absence, can be relied on: it is neither wrong
// nor probably meant by an unknown key.
bool sound(const Node* map, std::string_view key);
// The node at a path such as data.train or model.layers.3.linear; nullptr if there is none.
const Node* node_at(const Node& root, std::string_view path);
// The mark to report: the first on the command line, otherwise the first.
SourceMark blame(std::initializer_list<SourceMark> marks);

}  // namespace bitgrad::config
