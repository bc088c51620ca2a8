// The registry of keys: keys.inc as data, with look-up, hints and value types.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/number_range.h"
#include "config/tree.h"

namespace bitgrad::config {

struct KeySpec;

// A value type: how it reads a node, and how messages describe it.
struct ValueType {
  // What is expected, for messages. In texts of a type, <keys> are those of the group named by `detail`; <detail>,
  // <choices> etc. are the key's own.
  std::string_view form;
  // Sets `value` and returns an empty text, or returns what is wrong ("got ..., expected ..."). nullptr: maps and lists
  // of maps.
  std::string (*read)(const KeySpec& spec, const Node& node, Value& value);
  std::string_view shown;    // as `form`, in the reference; empty: the same
  std::string_view example;  // of a key without a default
  // `form` of this key, e.g. "a whole number in [1, 64]".
  std::string expects(const KeySpec& spec) const;
};
#define BITGRAD_VALUE_TYPE(symbol, ...) extern const ValueType symbol;
#include "config/value_types.inc"
#undef BITGRAD_VALUE_TYPE

// One key. `detail`: the range of a number, the units of a quantity, or the group of a map or of the maps in a list.
// `standard`: "!" required, "!other" unless the key `other` is given; "" optional, absent without a default; "=x"
// computed (x says how); otherwise the default as YAML. `when`: the values of the group's selector (format, name) for
// which the key exists, separated by commas; empty: always.
struct KeySpec {
  std::string_view group, key;
  const ValueType* type;
  std::string_view detail, standard, when;
  std::function<std::vector<std::string>()> choices;
  std::string_view doc;
  std::string_view optional = {};  // selected values for which a required key is optional, by comma
  int64_t count = 0;               // kInts: length of the list

  bool required() const { return standard.starts_with('!'); }
  // The key of the same map that may replace a required one; empty: none.
  std::string_view alternative() const { return required() ? standard.substr(1) : std::string_view(); }
  bool computed() const { return standard.starts_with('='); }
  bool has_default() const { return !standard.empty() && !required() && !computed(); }
  bool applies(std::string_view selected) const;
  std::string with(std::string_view separator = " or ") const;  // the values of `when`
  // Whether the key is required for this value of the selector.
  bool required_with(std::string_view selected) const;
};

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
// A text of a value type with its <words> replaced by those of this key.
std::string filled(std::string_view text, const KeySpec& spec);
// The default of a key, read by its type; monostate if it has none. `spec` must be one of all_keys().
const Value& default_value(const KeySpec& spec);

// The nearest of `names` by edit distance with transpositions, if it is within a third of the word's length (at least
// 1); otherwise "".
std::string nearest(std::string_view word, const std::vector<std::string>& names);
std::string join(const std::vector<std::string>& names, std::string_view separator = ", ");
std::vector<std::string> split(std::string_view text, char separator);
// path_of("a.b", "c") is "a.b.c"; path_of("", "c") is "c".
std::string path_of(std::string_view group_path, std::string_view key);

}  // namespace bitgrad::config
