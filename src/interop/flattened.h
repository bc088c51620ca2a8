// Which columns of a model are a flattened image, whose order differs between programs.
#pragma once

#include <map>
#include <string>

#include "bitgrad/nn/module.h"
#include "bitgrad/tensor/shape.h"

namespace bitgrad::interop {

// Paths of the parameters and buffers whose inputs are a flattened image, and its form [h, w, c]: up to the first layer
// that mixes features. PyTorch has them in the order [c, h, w].
std::map<std::string, Shape> flattened_images(Module& model);

}  // namespace bitgrad::interop
