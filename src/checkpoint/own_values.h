// Values that a model keeps, whatever file its initial values come from.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "bitgrad/nn/module.h"

namespace bitgrad::checkpoint {

// Paths of learned parts and observed ranges of activation quantizers, learned parts of weights, and adapter parameters
// that are not in the file.
std::set<std::string> own_values(Module& model, const std::function<bool(const std::string& path)>& in_file);

}  // namespace bitgrad::checkpoint
