// Converts a checked tree to a RunConfig.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "bitgrad/base/key.h"
#include "config/fields.h"
#include "config/steps.h"

namespace bitgrad::config {

template <typename T>
struct Plain {
  using Type = T;
};
template <typename T>
struct Plain<std::optional<T>> {
  using Type = T;
};

template <typename T, typename Read>
void assign_read(T& field, const Read& read) {
  using Field = typename Plain<T>::Type;
  if constexpr (std::is_same_v<T, Read> || std::is_same_v<T, std::optional<Read>>) {
    field = read;
  } else if constexpr (NamedEnum<Field> && std::is_same_v<Read, std::string>) {
    if (const std::optional<Field> found = find_enum<Field>(read)) field = *found;
  } else if constexpr ((std::is_same_v<Field, float> && std::is_same_v<Read, double>) ||
                       (std::is_same_v<Field, uint64_t> && std::is_same_v<Read, int64_t>)) {
    field = static_cast<Field>(read);
  } else if constexpr (std::is_same_v<T, std::optional<float>> && std::is_same_v<Read, std::optional<double>>) {
    field = read ? std::optional(static_cast<float>(*read)) : std::nullopt;
  }
}

inline void assign_read(std::array<float, 2>& field, const std::array<double, 2>& read) {
  field = {static_cast<float>(read[0]), static_cast<float>(read[1])};
}
inline void assign_read(std::vector<float>& field, const std::vector<double>& read) {
  field.clear();
  for (const double x : read) field.push_back(static_cast<float>(x));
}

// Assigns a value to a field, which may be optional, an enumeration read by name, or narrower. A missing value
// (monostate, already reported) leaves the field unchanged.
template <typename T>
void assign(T& field, const Value& value) {
  std::visit([&](const auto& read) { assign_read(field, read); }, value);
}

template <typename T>
void assign(Pair<T> field, const Value& value) {
  if (const auto* const read = std::get_if<std::array<double, 2>>(&value))
    field.first = static_cast<T>((*read)[0]), field.second = static_cast<T>((*read)[1]);
}
template <typename T>
void assign(Words<T> field, const Value& value) {
  if (const auto* const word = std::get_if<std::string>(&value)) field.flag = *word == field.yes;
}
template <typename T>
void assign(Limit<T> field, const Value& value) {
  if (const auto* const limit = std::get_if<std::optional<double>>(&value))
    field.value = static_cast<T>(limit->value_or(0));
}

// The value of a key in `node`, or else its default; monostate if there is none or it is wrong.
const Value& value_of(std::string_view group, std::string_view key, const Node* node);

inline const Node* child(const Node* map, std::string_view key) { return map ? map->child(key) : nullptr; }

// Reads the keys of one map; nullptr means all defaults.
class Reader {
 public:
  Reader(std::string_view group, const Node* map) : group_(group), map_(map) {}
  void operator()(std::string_view key, DatasetConfig& field) const;
  void operator()(std::string_view key, std::vector<TransformConfig>& field) const;
  template <typename T>
  void operator()(std::string_view key, T&& field) const {
    using Field = std::remove_reference_t<T>;
    const Node* const node = child(map_, key);
    if constexpr (requires { field.list; }) {
      if (node != nullptr && !node->bad) read_section(node, field.list.emplace_back());
    } else if constexpr (Section<Field>) {
      read_section(node, field);
    } else if constexpr (Section<typename Plain<Field>::Type>) {
      if (node != nullptr && !node->bad) (*this)(key, field.emplace());
    } else {
      assign(field, value_of(group_, key, node));
    }
  }
  // Reads the keys of a section, and where its map stands.
  template <Section C>
  static void read_section(const Node* map, C& out) {
    if constexpr (requires { out.mark; })
      if (map != nullptr) out.mark = map->mark;
    visit(Reader(section_group<C>(), map), out);
  }

 private:
  std::string_view group_;
  const Node* map_;
};

class ModelForms;

// The value as an attribute of a key described as data; nullopt if it has another type or was not read.
std::optional<Attribute> attribute_of(const Value& value);

// Reads every key, with defaults, and reports contradictions. `name` is that of the file, for run.name and relative
// paths.
RunConfig bind(const Node& root, const std::string& name, const ConfigSource& source, Report& report);

// Reads quant.recipe, first, last, rules, phases and budget, and reports contradictions among them. Called by bind.
void bind_prepare(const Node& root, RunConfig& config, Report& report);
// Report contradictions between keys that are valid by themselves: of batch and requantization, of data and what needs
// evaluations, of update rules and schedules, and an output that no layer scores. Called by bind.
void check_batch(const Node& root, const RunConfig& config, Report& report);
void check_data(const Node& root, const RunConfig& config, Report& report);
void check_optim(const Node& root, const RunConfig& config, Report& report);
void check_output(const Node& root, const RunConfig& config, Report& report);
// Reports layers that do not fit together, in a configuration without other findings. Resets inherited keys that do not
// fit a layer's own dtype to their defaults.
void check_plan(const Node& root, RunConfig& config, Report& report);

// Warns about such keys, in configurations written by a user: activations without a quantize layer, weights if recipes
// set every layer, requantize_every without low-bit weights, keys of a device that is not used, rename or ignore
// without a file to read, decay without weight decay. Values equal to the default give no warning. Requires a
// configuration without errors so far.
void check_effects(const Node& root, const RunConfig& config, const ModelForms& forms, Report& report);

}  // namespace bitgrad::config
