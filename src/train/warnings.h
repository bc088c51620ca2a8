// What a run does and nobody is likely to want.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/train/config.h"

namespace bitgrad::detail {

// Those of the configuration's text (ConfigOrigin::warnings), a batch larger than the data, more threads than cores.
// `samples`: of an epoch.
std::vector<std::string> run_warnings(const RunConfig& config, int64_t samples);
// The same, as warnings of the log.
void log_warnings(const RunConfig& config, int64_t samples);

}  // namespace bitgrad::detail
