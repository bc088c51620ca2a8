// The kernels of a device that is not the CPU, but for the rows of the families (row.h): one function for each line of
// device_kernels.inc. The public functions of those names (elementwise.h, reduce.h, quantize.h) call them when such a
// device is current; pointers are the device's. Functors have kernels of their own (src/kernels/map/map.h).
#pragma once

#include "bitgrad/kernels/elementwise.h"
#include "bitgrad/kernels/fused.h"
#include "bitgrad/kernels/quantize.h"
#include "bitgrad/kernels/reduce.h"
#include "bitgrad/kernels/rowwise.h"
#include "bitgrad/kernels/update_rows.h"

namespace bitgrad {

struct DeviceKernels {
#define BITGRAD_DEVICE_KERNEL(name, parameters) void(*name) parameters = nullptr;
#include "bitgrad/kernels/device_kernels.inc"
#undef BITGRAD_DEVICE_KERNEL
};

// Of the current device; nullptr on the CPU.
const DeviceKernels* device_kernels();
// `kernels` must live on. A device whose backend registers none has no kernels: asking for them is an Error(kDevice).
void register_device_kernels(DeviceKind kind, const DeviceKernels* kernels);

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

// First line of a public function: another device's kernel runs in place of what follows.
#define BITGRAD_ON_DEVICE(name, ...)                        \
  if (const ::bitgrad::DeviceKernels* k = device_kernels()) \
  return ::bitgrad::detail::present(k->name, #name)(__VA_ARGS__)
