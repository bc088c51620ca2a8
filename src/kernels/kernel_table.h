// Kernels of which each device has exactly one: a table per kind of device, including the CPU, with one function for
// each line of kernel_table.inc. The public functions of those names (elementwise.h, reduce.h, quantize.h, rowwise.h
// ...) dispatch to the current device, and take its pointers. Kernels with several alternatives are in the lists of
// their families (kernel.h).
#pragma once

#include "bitgrad/kernels/kernel.h"
#include "kernels/attention.h"
#include "kernels/conv.h"
#include "kernels/device_kernel.h"
#include "kernels/elementwise.h"
#include "kernels/quantize.h"
#include "kernels/reduce.h"
#include "kernels/rowwise.h"
#include "kernels/update_rows.h"

namespace bitgrad::kernels {

// run is nullptr: the device has no such kernel; calling it throws Error(kDevice) naming it.
template <typename Run>
struct TableKernel : KernelInfo {
  Run* run;
};
struct KernelTable {
#define BITGRAD_KERNEL(family, order, result, name, parameters, arguments) TableKernel<result parameters> name;
#include "kernels/kernel_table.inc"
#undef BITGRAD_KERNEL
};

// The functions of the CPU's table, each defined in the folder of its family.
namespace cpu {
#define BITGRAD_KERNEL(family, order, result, name, parameters, arguments) result name parameters;
#include "kernels/kernel_table.inc"
#undef BITGRAD_KERNEL
}  // namespace cpu

// Table of the current device. Throws Error(kDevice) if its backend registered none.
const KernelTable& kernel_table();
// `table` must outlive all use of it. Throws Error for the CPU, whose table cannot be replaced.
void register_kernel_table(DeviceKind kind, const KernelTable* table);

}  // namespace bitgrad::kernels
