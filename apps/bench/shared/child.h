// Runs a measurement in a process of its own.
#pragma once

#include <functional>
#include <string>

#include "shared/report.h"

namespace bitgrad::bench {

// What `run` gives in a forked child. Throws Error with `what` and the child's message when it threw, or died.
Json run_in_child(const std::string& what, const std::function<Json()>& run);

}  // namespace bitgrad::bench
