#pragma once

#include "bitgrad/nn/parameter.h"

namespace bitgrad::detail {

// Throws Error for a number out of range, for a master of a float parameter, and for what the quantizer refuses.
void check_parameter_spec(const ParameterSpec& spec);

}  // namespace bitgrad::detail
