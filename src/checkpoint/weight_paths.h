// model.rename and model.ignore for files of bitgrad.
#pragma once

#include <string>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/config/weight_name.h"
#include "config/weight_names.h"

namespace bitgrad::checkpoint {

class WeightPaths {
 public:
  // Throws Error for a rule with an order of elements: files of bitgrad have its own.
  explicit WeightPaths(const WeightMap& map) : map_(map), rule_used_(map.names.size()), ignored_(map.ignore) {
    for (const WeightName& rule : map.names)
      require(!rule.transpose && !rule.ohwi && rule.chw.empty(), "rename", '\'', rule.parameter, "': got '",
              value_text(rule), "', expected a name alone: a file of bitgrad has the order of this model");
  }
  // The name in the file of a parameter or buffer of the model.
  std::string name_of(const std::string& path) {
    std::string name = path;
    for (size_t i = 0; i < map_.names.size(); ++i)
      if (const auto given = interop::renamed(map_.names[i], path)) {
        name = *given;
        rule_used_[i] = true;
      }
    return name;
  }
  bool ignored(const std::string& name) { return ignored_.ignored(name); }
  // Throws Error for a rule that matched nothing. Call it when every path of the model was asked for.
  void check_used() const {
    for (size_t i = 0; i < rule_used_.size(); ++i)
      require(rule_used_[i], "rename", '\'', map_.names[i].parameter, "' matches no parameter of the model");
  }
  // Throws Error for a glob that matched nothing. Call it when every name of the file was asked for, too.
  void require_used() const { ignored_.require_used(); }

 private:
  const WeightMap map_;
  std::vector<bool> rule_used_;
  interop::IgnoredNames ignored_;
};

}  // namespace bitgrad::checkpoint
