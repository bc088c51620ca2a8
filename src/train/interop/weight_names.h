// Which name of a file a parameter has: rules of model.rename, and what PyTorch calls the same thing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bitgrad/train/weight_map.h"

namespace bitgrad::interop {

// The name that a rule gives a path; nullopt: it does not match.
std::optional<std::string> renamed(const WeightName& rule, const std::string& path);
// Names that the parameter may have, the first one that a file has counts: of `name`, else of the path itself.
std::vector<std::string> candidate_names(const std::string& path, const std::optional<std::string>& name);

}  // namespace bitgrad::interop
