// A configuration as a tree, with a mark for each key and each value. Built by yaml.cpp, changed by overrides,
// completed by validate.
#pragma once

#include <array>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "config/source.h"

namespace bitgrad::config {

// A scalar (or list of numbers), as read by its key's type; monostate: not read, or wrong.
using Value = std::variant<std::monostate, bool, int64_t, double, std::string, Quantity, std::array<double, 2>, Init,
                           Granularity, DType, std::optional<double>, std::optional<int64_t>, std::optional<Quantity>,
                           std::vector<int64_t>, std::vector<double>, std::vector<std::string>, std::vector<Quantity>>;

struct Entry;

struct Node {
  enum class Kind : uint8_t { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  SourceMark mark;
  std::string text;            // of a scalar
  bool quoted = false;         // a quoted or block scalar is text, never a number
  std::vector<Node> items;     // of a list
  std::vector<Entry> entries;  // of a map, in order, including duplicates

  // Set by validate.
  Value value;
  bool bad = false;                // already reported: checks that need it are silent
  std::string block;               // of a layer that comes from a block: "block 'unit', used at 14:7"
  std::set<std::string> suspects;  // known keys that an unknown key of this map was probably meant to be

  // The first entry with that key, or nullptr; nullptr also if this is not a map.
  const Entry* find(std::string_view key) const;
  Entry* find(std::string_view key);
  const Node* child(std::string_view key) const;
  // Length of the caret line.
  size_t length() const { return quoted ? text.size() + 2 : text.size(); }
};

struct Entry {
  std::string key;
  SourceMark key_mark;
  Node node;
};

inline const Entry* Node::find(std::string_view key) const {
  for (const Entry& entry : entries)
    if (entry.key == key) return &entry;
  return nullptr;
}
inline Entry* Node::find(std::string_view key) { return const_cast<Entry*>(std::as_const(*this).find(key)); }
inline const Node* Node::child(std::string_view key) const {
  const Entry* entry = find(key);
  return entry ? &entry->node : nullptr;
}

// What was found, for messages: "a map", "a list", "'x'", "nothing".
std::string describe(const Node& node);

}  // namespace bitgrad::config
