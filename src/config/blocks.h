// model.blocks: named lists of layers, which are used like a kind of layer.
//
//   blocks:
//     unit: {keys: {c: required, s: 1}, layers: [{linear: {out: $c}}, {relu: {}}]}
//   layers: [{unit: {c: 64}}]
#pragma once

#include <string>
#include <vector>

#include "config/source.h"
#include "config/tree.h"

namespace bitgrad::config {

// Replaces each use of a block by {sequence: {layers: ...}}, and each $key by the argument or the block's default.
// Nodes from a block keep the marks of its definition and record where it is used (Node::block). Blocks may use others,
// but not themselves. Runs before the schema is checked; reports errors in blocks and uses. `context`: where all of
// them come from, e.g. "preset 'cnv', used at 4:18"; empty: the configuration.
void expand_blocks(Node& root, Report& report, const std::string& context = {});
// Names of blocks, in the order of the text.
std::vector<std::string> block_names(const Node& root);

}  // namespace bitgrad::config
