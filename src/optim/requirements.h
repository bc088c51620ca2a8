// Valid combinations of update rule, master, scheme and dtype. docs/numerics.md section 6.
#pragma once

#include <string_view>

#include "bitgrad/optim/update_rule.h"

namespace bitgrad::detail {

// Throws Error that names the parameter and suggests an alternative.
void check_trainable(const Parameter& parameter, std::string_view rule_name, const UpdateRule& rule);

}  // namespace bitgrad::detail
