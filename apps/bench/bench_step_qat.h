// bench_step --qat: what a step of quantization-aware training costs beside the step of its float twin, the same net
// with fp32 weights and activations and the same optimizer, in this framework and in the same run.
#pragma once

#include "bench_step_options.h"
#include "shared/report.h"

namespace bitgrad::bench {

// One row a net and scheme; prints each as it is measured. Throws Error for a name in options.schemes that is none.
void measure_qat(const Options& options, Json& report);

}  // namespace bitgrad::bench
