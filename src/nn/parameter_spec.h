#pragma once

#include "bitgrad/nn/parameter.h"

namespace bitgrad::detail {

// Throws Error for values out of range, a master of a float parameter, and whatever the quantizer rejects.
void check_parameter_spec(const ParameterSpec& spec);

// Ignores the sharpness of rule tanh, which follows the progress of the run and was not requested.
bool same_quant(const std::optional<QuantSpec>& a, const std::optional<QuantSpec>& b);

}  // namespace bitgrad::detail
