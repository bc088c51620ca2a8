// The keys of a block or a preset: what uses give them, and $key in its layers.
#pragma once

#include <map>
#include <string>

#include "train/config/source.h"
#include "train/config/tree.h"

namespace bitgrad::config {

// The map of keys of a block, each with its default or required; nullptr: it has none.
struct BlockKeys {
  std::string owner;  // for messages: "block 'unit'"
  std::string path;   // of the map that a use gives: "unit", "model.keys"
  const Node* keys = nullptr;
};
using Arguments = std::map<std::string, const Node*>;

// Reports the first key of a map that is there twice (false).
bool unique_keys(const Node& map, Report& report);
// Reports each $key below `node` that names none of `keys`, and each value with a key that is no such expression:
// $key, or a sum of products and quotients of keys and whole numbers above 0.
void check_key_uses(const Node& node, const Node* keys, const std::string& owner, Report& report);
// What a use gives, with defaults for the rest. `given`: the map and its key, for marks. False: something was reported.
bool take_arguments(const Entry& given, const BlockKeys& block, Arguments& arguments, Report& report);
// Puts values in the place of $key, and whole numbers in the place of expressions. layers: `node` is a list of layers,
// in which a key that holds a list stands for the layers of that list. A key that `arguments` does not have stays.
// False: reported; a value is no whole number where one is needed, or a quotient is none.
bool substitute(Node& node, const Arguments& arguments, Report& report, bool layers);

}  // namespace bitgrad::config
