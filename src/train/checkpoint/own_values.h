// Values that belong to a model alone, whatever file its first values come from.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "bitgrad/nn/module.h"

namespace bitgrad::checkpoint {

// Paths of learned parts and observed ranges of quantization, and of adapters whose parameter the file does not have.
std::set<std::string> own_values(Module& model, const std::function<bool(const std::string& path)>& in_file);

}  // namespace bitgrad::checkpoint
