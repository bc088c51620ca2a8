// Which rule applies to which layer, as convert and quantize print it.
#pragma once

#include <ostream>

#include "bitgrad/config/config.h"
#include "bitgrad/nn/prepare.h"

namespace bitgrad::cli {

// The spec defined by a configuration without phases (quant.recipe, first, last, rules).
PrepareSpec prepare_spec_of(const RunConfig& config);
// One line per layer: its path, the winning rule, the recipe; "(off)" while quantization is switched off.
void print_choices(std::ostream& out, Module& model, const PrepareSpec& spec);

}  // namespace bitgrad::cli
