// model.blocks: lists of layers with a name, which stands for a kind of layers then.
//
//   blocks:
//     unit: {keys: {c: required, s: 1}, layers: [{linear: {out: $c}}, {relu: {}}]}
//   layers: [{unit: {c: 64}}]
#pragma once

#include <string>
#include <vector>

#include "train/config/source.h"
#include "train/config/tree.h"

namespace bitgrad::config {

// Puts {sequence: {layers: ...}} in the place of each use of a block, with $key replaced by the value that the use or
// the block gives. What comes from a block keeps the marks of its definition, and says where it is used (Node::block).
// Blocks may use others, none itself. Runs before the schema is checked; reports what is wrong with blocks and uses.
// `context`: where all of them come from, "preset 'cnv', used at 4:18"; empty: the configuration.
void expand_blocks(Node& root, Report& report, const std::string& context = {});
// Names of blocks in the order of the text.
std::vector<std::string> block_names(const Node& root);

}  // namespace bitgrad::config
