// The contracts of bitgrad::kernels, by their short names inside bitgrad::cuda.
#pragma once

#include "kernels/kernel_table.h"

namespace bitgrad::cuda {

using namespace kernels;

}  // namespace bitgrad::cuda
