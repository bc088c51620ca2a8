// The kernels that a device has one of each: a table for each kind of device, the CPU among them, one function for each
// line of kernel_table.inc. The public functions of those names (elementwise.h, reduce.h, quantize.h, rowwise.h ...)
// call that of the current device; pointers are the device's. Kernels of which a device has several to choose from are
// in the lists of their families (kernel.h).
#pragma once

#include <string_view>

#include "bitgrad/kernels/depthwise.h"
#include "bitgrad/kernels/elementwise.h"
#include "bitgrad/kernels/fused_quantize.h"
#include "bitgrad/kernels/quantize.h"
#include "bitgrad/kernels/reduce.h"
#include "bitgrad/kernels/rowwise.h"
#include "bitgrad/kernels/update_rows.h"
#include "bitgrad/kernels/windows.h"

namespace bitgrad::kernels {

// A null line: the device has no such kernel, and a call is an Error(kDevice) that names it.
struct KernelTable {
#define BITGRAD_KERNEL(result, name, parameters, arguments) result(*name) parameters = nullptr;
#include "bitgrad/kernels/kernel_table.inc"
#undef BITGRAD_KERNEL
};

// Of the current device. Throws Error(kDevice) where its backend registered none.
const KernelTable& kernel_table();
// `table` must live on. The CPU's cannot be replaced.
void register_kernel_table(DeviceKind kind, const KernelTable* table);

}  // namespace bitgrad::kernels

namespace bitgrad {

// A float from the current device's memory. Waits for the device, and polls its errors (flag.h).
float read_number(const float* number);

namespace detail {
// A kernel of the current device that is absent: Error(kDevice) that names it.
[[noreturn]] void fail_no_device_kernel(std::string_view name);
[[noreturn]] void fail_fp64_on_device(std::string_view name);

template <typename Function>
Function* present(Function* kernel, std::string_view name) {
  if (kernel == nullptr) fail_no_device_kernel(name);
  return kernel;
}
}  // namespace detail
}  // namespace bitgrad
