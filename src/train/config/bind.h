// Checked tree -> RunConfig.
#pragma once

#include <optional>

#include "bitgrad/base/key.h"
#include "train/config/validate.h"

namespace bitgrad::config {

// Puts a read value into a field; a value that is not there (monostate: reported before) leaves the field.
template <typename T>
void assign(T& field, const Value& value) {
  if (const T* read = std::get_if<T>(&value)) field = *read;
}

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
