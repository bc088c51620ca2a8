#pragma once

#include "bitgrad/nn/parameter.h"

namespace bitgrad::detail {

// Throws Error for values out of range, a master of a float parameter, and whatever the quantizer rejects.
void check_parameter_spec(const ParameterSpec& spec);

}  // namespace bitgrad::detail
