// Keys that are right by themselves and have no effect in this configuration.
#pragma once

#include "train/config/model_forms.h"
#include "train/config/source.h"
#include "train/config/tree.h"

namespace bitgrad::config {

// Reports activations without a quantize layer as an error, and the others as warnings: quant.weights where recipes
// hold every layer, keys of a device that is not used, names of weights that no file is read for. Values that are the
// defaults say nothing, so that resolved configurations have no warnings. The configuration has no error so far.
void check_effects(const Node& root, const RunConfig& config, const ModelForms& forms, Report& report);

}  // namespace bitgrad::config
