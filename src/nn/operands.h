// Quantizers of what layers without weights read, for compute: integer.
#pragma once

#include "bitgrad/nn/module.h"

namespace bitgrad::detail {

// Adds them where slots have compute: integer, quantized as the input of the first of these, and removes them where
// none has. Call after slots were set.
void operands_follow_slots(Module& model);

}  // namespace bitgrad::detail
