// Keys that are valid but have no effect in this configuration.
#pragma once

#include "config/model_forms.h"
#include "config/source.h"
#include "config/tree.h"

namespace bitgrad::config {

// Warns about such keys, in configurations written by a user: activations without a quantize layer, weights if recipes
// set every layer, requantize_every without low-bit weights, keys of a device that is not used, rename or ignore
// without a file to read, decay without weight decay. Values equal to the default give no warning. Requires a
// configuration without errors so far.
void check_effects(const Node& root, const RunConfig& config, const ModelForms& forms, Report& report);

}  // namespace bitgrad::config
