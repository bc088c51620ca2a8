// The registry of keys: keys.inc as data, with look-up, hints and the types of values.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/number_range.h"
#include "train/config/tree.h"

namespace bitgrad::config {

struct KeySpec;

// A type of value: how it reads a node, and what messages call it.
struct ValueType {
  // Of expects(): <keys> are those of the group that `detail` names, <detail>, <choices> and the others the key's own.
  std::string_view form;
  // Returns an empty text and sets `value`, or says what is wrong ("got ..., expected ..."). nullptr: maps and
  // lists of them.
  std::string (*read)(const KeySpec& spec, const Node& node, Value& value);
  // What is expected: "a whole number in [1, 64]".
  std::string expects(const KeySpec& spec) const;
};
#define BITGRAD_VALUE_TYPE(symbol, ...) extern const ValueType symbol;
#include "train/config/value_types.inc"
#undef BITGRAD_VALUE_TYPE

// One key. `detail`: the range of a number, the units of a quantity, the group that a map opens, or each map
// of a list.
// `standard`: "!" required, "!other" unless the key `other` is given; "" optional, absent without a default; "=x"
// computed (x says how); else the default as YAML. `when`: the values of the group's selector (format, name) under
// which the key exists, by comma; empty: always.
struct KeySpec {
  std::string_view group, key;
  const ValueType* type;
  std::string_view detail, standard, when;
  std::function<std::vector<std::string>()> choices;
  std::string_view doc;
  std::string_view optional = {};  // selected values under which a required key may be left out, by comma

  bool required() const { return standard.starts_with('!'); }
  // The key of the same map that may stand in place of a required one; empty: none.
  std::string_view alternative() const { return required() ? standard.substr(1) : std::string_view(); }
  bool computed() const { return standard.starts_with('='); }
  bool has_default() const { return !standard.empty() && !required() && !computed(); }
  bool applies(std::string_view selected) const;
  // Whether it must be there beside this value of the selector.
  bool required_with(std::string_view selected) const;
};

// Those of keys.inc, of the transforms (group "transform"), and of what is registered now. Group "layer" has a key for
// each kind, group "layer.<kind>" its keys; "loss" and "metrics" have one for each loss and metric with keys,
// "loss.<name>" and "metrics.<name>" these. Own keys of formats and schemes stand in "dataset", "weights" and
// "activations", with `when`. Pointers to keys stay valid.
std::vector<const KeySpec*> all_keys();
// Of a loss or metric; of a layer kind: group_of_kind.
inline std::string group_of_named(std::string_view group, std::string_view name) { return concat(group, '.', name); }
// The group of a kind's own keys.
std::string group_of_kind(std::string_view kind);
// A group as people know it: its name, or the kind of layer.
std::string_view shown_group(std::string_view group);
const KeySpec* find_key(std::string_view group, std::string_view key);
std::vector<std::string> keys_of(std::string_view group);
// The key of a group whose value decides which others exist ("optim" -> "name"), or empty. `merged`: also where that
// value may come from another map.
std::string_view selector_of(std::string_view group, bool merged = false);
// The default of a key, read by its type; monostate when it has none. `spec` is one of all_keys().
const Value& default_value(const KeySpec& spec);

// The nearest of `names` by edit distance with transpositions, if it is near enough to be meant (at most a third of the
// word, at least 1); else "".
std::string nearest(std::string_view word, const std::vector<std::string>& names);
std::string join(const std::vector<std::string>& names, std::string_view separator = ", ");
std::vector<std::string> split(std::string_view text, char separator);
// "" or "group."
std::string path_of(std::string_view group_path, std::string_view key);

}  // namespace bitgrad::config
