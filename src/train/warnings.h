// Warnings about settings that are legal but unlikely to be intended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/train/config.h"

namespace bitgrad::detail {

// Warnings of the configuration's text (ConfigOrigin::warnings), a batch larger than the data, more threads than cores.
// `samples`: per epoch.
std::vector<std::string> run_warnings(const RunConfig& config, int64_t samples);
// Logs the same warnings.
void log_warnings(const RunConfig& config, int64_t samples);

}  // namespace bitgrad::detail
