// Layers that stay as they are while others train: weights, biases, norms, their running statistics, learned steps and
// observed ranges.
#pragma once

#include <string>
#include <vector>

#include "bitgrad/nn/module.h"

namespace bitgrad {

// Freezes the layers whose full path matches one of the globs (QuantRule), with everything below them, and the
// parameters whose path does. Call before initialize. Throws Error for a glob that matches nothing that could change,
// and for a layer that shares the weight of one that still trains.
void freeze_layers(Module& model, const std::vector<std::string>& globs, const std::string& root = kModelRoot);
// Parameters that train although `weights: {frozen: true}` holds the weight of their layer, such as its bias.
std::vector<std::string> trained_beside_frozen(Module& model, const std::string& root = kModelRoot);

}  // namespace bitgrad
