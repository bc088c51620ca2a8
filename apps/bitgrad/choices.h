// Which rule holds which layer how, as convert and quantize show it.
#pragma once

#include <ostream>

#include "bitgrad/nn/prepare.h"
#include "bitgrad/train/config.h"

namespace bitgrad::cli {

// The spec that a configuration without phases says (quant.recipe, first, last, rules).
PrepareSpec prepare_spec_of(const RunConfig& config);
// One layer a line: its path, the rule that won, the recipe; "(off)" while it is switched off.
void print_choices(std::ostream& out, Module& model, const PrepareSpec& spec);

}  // namespace bitgrad::cli
