// Runs a measurement in its own process.
#pragma once

#include <functional>
#include <string>

#include "shared/report.h"

namespace bitgrad::bench {

// Returns the result of `run` in a forked child. Throws Error with `what` and the child's message if it threw or died.
Json run_in_child(const std::string& what, const std::function<Json()>& run);

// {kind: bytes at the peak of this process since reset_memory_peaks ..., "total"}.
Json bytes_at_peak();

}  // namespace bitgrad::bench
