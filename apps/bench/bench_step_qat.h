// bench_step --qat: the cost of a step of quantization-aware training relative to its float twin: the same net with
// fp32 weights and activations and the same optimizer, in this framework and in the same run.
#pragma once

#include "bench_step_options.h"
#include "shared/report.h"

namespace bitgrad::bench {

// One row per net and scheme, printed as soon as it is measured. Throws Error for an unknown name in options.schemes.
void measure_qat(const Options& options, Json& report);

}  // namespace bitgrad::bench
