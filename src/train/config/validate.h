// Checks a tree against the registry: unknown, duplicate, missing, mistyped and out-of-range keys, and keys that do not
// go with their selector.
#pragma once

#include "train/config/schema.h"

namespace bitgrad::config {

// Sets Node::value, bad and suspects all over the tree, and reports what is wrong.
void validate(Node& root, Report& report);

// Whether what stands at `key` of `map` (nullptr: an absent map), or its absence, can be relied on: neither wrong
// itself nor probably meant by an unknown key.
bool sound(const Node* map, std::string_view key);
// What stands at a path such as data.train or model.layers.3.linear; nullptr: nothing.
const Node* node_at(const Node& root, std::string_view path);
// The mark to blame: the first on the command line, else the first.
SourceMark blame(std::initializer_list<SourceMark> marks);

}  // namespace bitgrad::config
