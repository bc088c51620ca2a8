// The registry of keys: keys.inc as data, with look-up, hints and the types of values.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/key.h"
#include "config/tree.h"

namespace bitgrad::config {

// One key of the configuration: a Key, or one with more meanings. `range`: also the units of a quantity, the forms of a
// granularity, or the group of a map or of the maps in a list. `standard`: also "!other", required unless the key
// `other` is given; "=x", computed (x says how); otherwise the default as YAML. `when`: the values of the group's
// selector (format, name) for which the key exists, separated by commas; empty: always.
struct KeySpec : Key {
  std::string group = {}, when = {};
  std::function<std::vector<std::string>()> listed = {};  // choices of a list that may grow
  std::string optional = {};  // selected values for which a required key is optional, by comma

  std::vector<std::string> names() const { return listed ? listed() : choices; }
  const std::string& inner() const { return range; }  // the group of a map
  bool required() const { return standard.starts_with('!'); }
  // The key of the same map that may replace a required one; empty: none.
  std::string alternative() const { return required() ? standard.substr(1) : ""; }
  bool computed() const { return standard.starts_with('='); }
  bool has_default() const { return !standard.empty() && !required() && !computed(); }
  bool applies(std::string_view selected) const;
  std::string with(std::string_view separator = " or ") const;  // the values of `when`
  // Whether the key is required for this value of the selector.
  bool required_with(std::string_view selected) const;
};
using Type = Key::Type;

// What the configuration knows of a type (key_types.inc), beside its form.
struct TypeUse {
  // Sets `value` and returns an empty text, or returns what is wrong ("got ..., expected ...").
  std::string (*read)(const KeySpec& spec, const Node& node, Value& value);
  std::string_view form, shown, example;
};
const TypeUse& use_of(Type type);
// A text of a type with its <words> replaced by those of this key.
std::string filled(std::string_view text, const KeySpec& spec);
// As for Key; <keys> are those of the group that the key names.
std::string expects(const KeySpec& spec);

// The keys of keys.inc, of the transforms (group "transform"), and of everything registered so far. Group "layer" has a
// key for each kind, group "layer.<kind>" the kind's keys. "loss" and "metrics" have a key for each loss and metric
// with keys, which are in "loss.<name>" and "metrics.<name>". Keys of formats and schemes are in "dataset", "weights"
// and "activations", with `when`. Pointers to keys stay valid.
std::vector<const KeySpec*> all_keys();
// Those of a group.
std::vector<const KeySpec*> keys_in(std::string_view group);
// The group of a loss or metric. For layer kinds see group_of_kind.
inline std::string group_of_named(std::string_view group, std::string_view name) { return concat(group, '.', name); }
// The group of a kind's own keys.
std::string group_of_kind(std::string_view kind);
// The name of a group in messages: its own, or the kind of layer.
std::string_view shown_group(std::string_view group);
const KeySpec* find_key(std::string_view group, std::string_view key);
std::vector<std::string> keys_of(std::string_view group);
// The key of a group whose value determines which others exist ("optim" -> "name"), or empty. `merged`: include
// selectors whose value may be inherited.
std::string_view selector_of(std::string_view group, bool merged = false);
// The default of a key, read by its type; monostate if it has none. `spec` must be one of all_keys().
const Value& default_value(const KeySpec& spec);

// The nearest of `names` by edit distance with transpositions, if it is within a third of the word's length (at least
// 1); otherwise "".
std::string nearest(std::string_view word, const std::vector<std::string>& names);
std::vector<std::string> split(std::string_view text, char separator);
// path_of("a.b", "c") is "a.b.c"; path_of("", "c") is "c".
std::string path_of(std::string_view group_path, std::string_view key);

}  // namespace bitgrad::config
