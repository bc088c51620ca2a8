// The listed kernel of family reduce. Contract: reduce (kernels/reduce.h).
#pragma once

#include "cuda/kernels/contracts.h"

namespace bitgrad::cuda {

// Every rule and axis.
void reduce_lanes_cuda(const ReduceArgs& args);

}  // namespace bitgrad::cuda
