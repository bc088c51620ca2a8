// Key `plugins`: libraries are loaded before the rest is checked, because their registrations add keys.
#pragma once

#include <string>
#include <vector>

#include "config/tree.h"

namespace bitgrad::config {

// Loads the libraries that the tree names and returns their paths; reports those that cannot be loaded, at their place.
// `name` is that of the file: paths are relative to its folder, those of the command line to the current folder. Loads
// nothing from a list that is malformed, which the schema reports.
std::vector<std::string> load_plugins(const Node& root, const std::string& name, const ConfigSource& source,
                                      Report& report);

// data.root as the config.yaml of a run says it, which nothing else of that file decides; empty if it cannot be read.
// Loads nothing, and throws ConfigError that names the plugins that are not loaded.
std::string recorded_root(const std::string& path);

}  // namespace bitgrad::config
