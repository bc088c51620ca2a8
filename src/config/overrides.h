// Overrides of the command line. They are applied to the tree before it is checked, so that the schema applies to them
// as it does to the file.
#pragma once

#include "config/tree.h"

namespace bitgrad::config {

// "a.b=value" sets, "a.0.b=value" sets in an item of a list, "~a.b" removes (back to the default). What is set gets
// marks that name the argument.
void apply_overrides(Node& root, const std::vector<std::string>& overrides, Report& report);

}  // namespace bitgrad::config
