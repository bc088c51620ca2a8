// Checks a tree against the registry: unknown, duplicate, missing, mistyped and out-of-range keys, and keys that do not
// match their selector.
#pragma once

#include "config/schema.h"

namespace bitgrad::config {

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
