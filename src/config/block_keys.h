// Keys of a block or a preset: the arguments of a use, and $key in its layers.
#pragma once

#include <map>
#include <string>

#include "config/source.h"
#include "config/tree.h"

namespace bitgrad::config {

// The keys of a block, each with its default or `required`; keys is nullptr if it has none.
struct BlockKeys {
  std::string owner;  // for messages: "block 'unit'"
  std::string path;   // path of the map with the arguments: "unit", "model.keys"
  const Node* keys = nullptr;
};
using Arguments = std::map<std::string, const Node*>;

// Reports the first duplicate key of a map; returns false then.
bool unique_keys(const Node& map, Report& report);
// Reports each $key below `node` that is not one of `keys`, and each value with a key that is not a valid expression:
// $key, or a sum of products and quotients of keys and whole numbers above 0.
void check_key_uses(const Node& node, const Node* keys, const std::string& owner, Report& report);
// The arguments of a use, completed by defaults. `given`: the map and its key, for marks. Returns false after reporting
// an error.
bool take_arguments(const Entry& given, const BlockKeys& block, Arguments& arguments, Report& report);
// Replaces each $key by its argument, and each expression by a whole number. layers: `node` is a list of layers, in
// which a key that holds a list is replaced by the layers of that list. Keys not in `arguments` stay. Returns false
// after reporting a value that is not a whole number where one is needed, or a quotient that is not whole.
bool substitute(Node& node, const Arguments& arguments, Report& report, bool layers);

}  // namespace bitgrad::config
