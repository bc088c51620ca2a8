// Warnings about settings that are legal but unlikely to be intended.
#pragma once

#include <string>
#include <vector>

#include "bitgrad/config/config.h"
#include "bitgrad/data/dataset.h"

namespace bitgrad::detail {

// Warnings of the configuration's text (ConfigOrigin::warnings), a batch larger than the data, more threads than cores,
// named features that have one value in all samples.
std::vector<std::string> run_warnings(const RunConfig& config, const Dataset& train);
// Logs the same warnings.
void log_warnings(const RunConfig& config, const Dataset& train);

}  // namespace bitgrad::detail
