// YAML text -> tree. The one place that knows yaml-cpp.
#pragma once

#include "train/config/tree.h"

namespace bitgrad::config {

// Reads one document. Bad bytes, broken syntax, anchors, aliases, tags, merge keys, keys that are not words, a second
// document and texts past the limits of source.h are added to the report, and the tree is not to be used then (returns
// false). An empty text gives a null node.
bool read_yaml(const SourceText& source, Report& report, Node& tree);

}  // namespace bitgrad::config
