// Keys that are right by themselves and have no effect in this configuration.
#pragma once

#include "train/config/model_forms.h"
#include "train/config/source.h"
#include "train/config/tree.h"

namespace bitgrad::config {

// Warns of them, in a text that somebody writes: activations without a quantize layer, weights where recipes hold every
// layer, keys of a device that is not used, names of weights that no file is read for. Values that are the defaults say
// nothing. The configuration has no error so far.
void check_effects(const Node& root, const RunConfig& config, const ModelForms& forms, Report& report);

}  // namespace bitgrad::config
