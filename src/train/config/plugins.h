// Key `plugins`: libraries are loaded before the rest is checked, for keys follow from what they register.
#pragma once

#include <string>
#include <vector>

#include "train/config/tree.h"

namespace bitgrad::config {

// Loads what the tree names and gives the paths; reports what cannot be loaded at its place. `name`: of the file, whose
// folder relative paths start at; those of the command line start at the current one. Of a list that does not read it
// loads nothing: the schema says why.
std::vector<std::string> load_plugins(const Node& root, const std::string& name, const ConfigSource& source,
                                      Report& report);

}  // namespace bitgrad::config
