// Memory of a training step, measured in its own process, so that no peak hides another and no rival is included.
#pragma once

#include "bench_step_options.h"
#include "shared/report.h"

namespace bitgrad::bench {

// {"bytes": {kind: bytes at the total peak ..., "total"}, "rss_growth", "fused"} of building the model and running two
// optimizer steps, including the input and the given gradient. Call it before any thread is started.
Json step_memory(const Case& what, const Options& options);

}  // namespace bitgrad::bench
