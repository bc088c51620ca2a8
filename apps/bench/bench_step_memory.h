// Memory of a training step, in a process of its own, so that no peak hides another and no rival is in it.
#pragma once

#include "bench_step_options.h"
#include "shared/report.h"

namespace bitgrad::bench {

// {"bytes": {kind: bytes at the total peak ..., "total"}, "rss_growth", "fused"}: two optimizer steps from nothing, the
// input and the given gradient counted. Call it before any thread is started.
Json step_memory(const Case& what, const Options& options);

}  // namespace bitgrad::bench
