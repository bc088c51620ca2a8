// What training must know of layers that draw.
#pragma once

#include "bitgrad/nn/module.h"

namespace bitgrad::detail {

// Whether the forward pass of the layer itself draws random numbers in training. Quantizers say so by their rounding.
bool draws_in_training(const Module& layer);

}  // namespace bitgrad::detail
