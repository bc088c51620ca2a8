// Converts a checked tree to a RunConfig.
#pragma once

#include <optional>

#include "bitgrad/base/enum_names.h"
#include "bitgrad/base/key.h"
#include "config/validate.h"

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
  } else if constexpr (std::is_same_v<Field, float> && std::is_same_v<Read, double>) {
    field = static_cast<float>(read);
  } else if constexpr (std::is_same_v<T, std::optional<float>> && std::is_same_v<Read, std::optional<double>>) {
    field = read ? std::optional(static_cast<float>(*read)) : std::nullopt;
  }
}

// Assigns a value to a field, which may be optional, an enumeration read by name, or narrower. A missing value
// (monostate, already reported) leaves the field unchanged.
template <typename T>
void assign(T& field, const Value& value) {
  std::visit([&](const auto& read) { assign_read(field, read); }, value);
}

// The value of a key in `node`, or else its default; monostate if there is none or it is wrong.
const Value& value_of(std::string_view group, std::string_view key, const Node* node);

inline const Node* child(const Node* map, std::string_view key) { return map ? map->child(key) : nullptr; }

// Reads the keys of one map; nullptr means all defaults.
class Reader {
 public:
  Reader(std::string_view group, const Node* map) : group_(group), map_(map) {}
  void operator()(std::string_view key, ScheduleConfig& field) const;
  void operator()(std::string_view key, BopSpec& field) const;
  void operator()(std::string_view key, AugmentConfig& field) const;
  void operator()(std::string_view key, std::vector<TransformConfig>& field) const;
  template <typename T>
  void operator()(std::string_view key, T& field) const {
    assign(field, value_of(group_, key, child(map_, key)));
  }

 private:
  std::string_view group_;
  const Node* map_;
};

// The value as an attribute of a key described as data; nullopt if it has another type or was not read.
std::optional<Attribute> attribute_of(const Value& value);

// Reads every key, with defaults, and reports contradictions. `name` is that of the file, for run.name and relative
// paths.
RunConfig bind(const Node& root, const std::string& name, const ConfigSource& source, Report& report);

// Reads quant.recipe, first, last, rules, phases and budget, and reports contradictions among them. Called by bind.
void bind_prepare(const Node& root, RunConfig& config, Report& report);
// Reports contradictions between keys that are valid by themselves. Called by bind.
void check_contradictions(const Node& root, RunConfig& config, Report& report);
// Reports layers that do not fit together, in a configuration without other findings. Resets inherited keys that do not
// fit a layer's own dtype to their defaults.
void check_plan(const Node& root, RunConfig& config, Report& report);

}  // namespace bitgrad::config
