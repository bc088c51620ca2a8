// Kernels of which each device has exactly one: a table per kind of device, including the CPU, with one function for
// each line of kernel_table.inc. The public functions of those names (elementwise.h, reduce.h, quantize.h, rowwise.h
// ...) dispatch to the current device, and take its pointers. Kernels with several alternatives are in the lists of
// their families (kernel.h).
#pragma once

#include "bitgrad/kernels/conv.h"
#include "bitgrad/kernels/depthwise.h"
#include "bitgrad/kernels/device_kernel.h"
#include "bitgrad/kernels/elementwise.h"
#include "bitgrad/kernels/fused_quantize.h"
#include "bitgrad/kernels/quantize.h"
#include "bitgrad/kernels/reduce.h"
#include "bitgrad/kernels/rowwise.h"
#include "bitgrad/kernels/update_rows.h"

namespace bitgrad::kernels {

// nullptr: the device has no such kernel; calling it throws Error(kDevice) naming it.
struct KernelTable {
#define BITGRAD_KERNEL(result, name, parameters, arguments) result(*name) parameters = nullptr;
#include "bitgrad/kernels/kernel_table.inc"
#undef BITGRAD_KERNEL
};

// Table of the current device. Throws Error(kDevice) if its backend registered none.
const KernelTable& kernel_table();
// `table` must outlive all use of it. Throws Error for the CPU, whose table cannot be replaced.
void register_kernel_table(DeviceKind kind, const KernelTable* table);

}  // namespace bitgrad::kernels
