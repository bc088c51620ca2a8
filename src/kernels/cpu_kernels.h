// The CPU's kernels of kernel_table.inc. Each is defined in the folder of its family.
#pragma once

#include "kernels/kernel_table.h"

namespace bitgrad::kernels::cpu {

#define BITGRAD_KERNEL(result, name, parameters, arguments) result name parameters;
#include "kernels/kernel_table.inc"
#undef BITGRAD_KERNEL

}  // namespace bitgrad::kernels::cpu
