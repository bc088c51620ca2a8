// Valid combinations of update rule, master, scheme and dtype. docs/numerics.md section 6.
#pragma once

#include <string_view>

#include "bitgrad/optim/update_rule.h"
#include "bitgrad/quant/scheme.h"

namespace bitgrad::detail {

// Throws Error that names the parameter and suggests an alternative.
void check_trainable(const Parameter& parameter, std::string_view rule_name, const UpdateRule& rule);

// Whether a scheme gives the codes of its own values again.
bool keeps_its_values(const QuantSpec& spec);

}  // namespace bitgrad::detail
