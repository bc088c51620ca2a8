// What functions that dispatch to the current device share: errors about kernels that it lacks, and reading a number
// from its memory.
#pragma once

#include <string_view>

namespace bitgrad {

// Reads a float from memory of the current device. Waits for the device and polls its errors (flag.h).
float read_number(const float* number);

namespace detail {
// Throws Error(kDevice): the current device has no such kernel, or no fp64.
[[noreturn]] void fail_no_device_kernel(std::string_view name);
[[noreturn]] void fail_fp64_on_device(std::string_view name);

template <typename Function>
Function* present(Function* kernel, std::string_view name) {
  if (kernel == nullptr) fail_no_device_kernel(name);
  return kernel;
}
}  // namespace detail
}  // namespace bitgrad
