// YAML text -> tree. The only file that uses yaml-cpp is yaml.cpp.
#pragma once

#include "config/tree.h"

namespace bitgrad::config {

// Reads one document. Bad bytes, broken syntax, anchors, aliases, tags, merge keys, keys that are not words, a second
// document and texts beyond the limits of source.h are added to the report; then the tree must not be used (returns
// false). An empty text gives a null node.
bool read_yaml(const SourceText& source, Report& report, Node& tree);

}  // namespace bitgrad::config
