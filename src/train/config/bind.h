// Checked tree -> RunConfig.
#pragma once

#include <optional>

#include "bitgrad/base/key.h"
#include "train/config/validate.h"

namespace bitgrad::config {

// Puts a read value into a field, also one that may hold none; a value that is not there (monostate: reported before)
// leaves the field.
template <typename T>
void assign(T& field, const Value& value) {
  const auto put = [&](const auto& read) {
    using Read = std::decay_t<decltype(read)>;
    if constexpr (std::is_same_v<T, Read> || std::is_same_v<T, std::optional<Read>>) field = read;
  };
  std::visit(put, value);
}

// The value of a key: that of `node`, else the default; monostate: there is none, or it is wrong.
const Value& value_of(std::string_view group, std::string_view key, const Node* node);

inline const Node* child(const Node* map, std::string_view key) { return map ? map->child(key) : nullptr; }

// Reads the keys of one map; nullptr: all defaults.
class Reader {
 public:
  Reader(std::string_view group, const Node* map) : group_(group), map_(map) {}
  void operator()(std::string_view key, BopConfig& field) const;
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

// A value that a key described as data may have; none: another one, or not read.
std::optional<Attribute> attribute_of(const Value& value);

// Reads every key, with defaults, and reports contradictions. `name`: of the file, for run.name and relative paths.
RunConfig bind(const Node& root, const std::string& name, const ConfigSource& source, Report& report);

// quant.recipe, first, last, rules, phases and budget, with what contradicts among them. Called by bind.
void bind_prepare(const Node& root, RunConfig& config, Report& report);
// Contradictions between keys that are sound themselves. Called by bind.
void check_contradictions(const Node& root, RunConfig& config, Report& report);
// Layers that do not fit together, in a configuration without other findings. Inherited keys that do not fit a layer's
// own dtype go back to their defaults.
void check_plan(const Node& root, RunConfig& config, Report& report);

}  // namespace bitgrad::config
