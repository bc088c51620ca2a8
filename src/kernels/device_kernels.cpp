#include "bitgrad/kernels/device_kernels.h"

#include <atomic>

#include "bitgrad/base/error.h"
#include "bitgrad/kernels/flag.h"

namespace bitgrad {
namespace {

std::atomic<const DeviceKernels*> g_cuda{nullptr};

}  // namespace

const DeviceKernels* device_kernels() {
  const Device device = current_device();
  if (device.is_cpu()) return nullptr;
  const DeviceKernels* const kernels = g_cuda.load(std::memory_order_acquire);
  if (kernels == nullptr)
    fail_with(ErrorCode::kDevice, "device", to_string(device), " has no kernels: its backend registered none.");
  return kernels;
}

void register_device_kernels(DeviceKind kind, const DeviceKernels* kernels) {
  require(kind == DeviceKind::kCuda, "register_device_kernels", "the kernels of ", to_string({kind, 0}),
          " cannot be replaced.");
  g_cuda.store(kernels, std::memory_order_release);
}

float read_number(const float* number) {
  if (current_device().is_cpu()) return *number;
  float out = 0;
  device_backend(current_device()).copy_to_host(&out, number, sizeof(out));
  poll_errors();
  return out;
}

namespace detail {

void fail_no_device_kernel(std::string_view name) {
  fail_with(ErrorCode::kDevice, name, "there is no such kernel on ", to_string(current_device()),
            ". Use the CPU (device.kind=cpu).");
}
void fail_fp64_on_device(std::string_view name) {
  fail_with(ErrorCode::kDevice, name, "fp64 is the reference dtype of the CPU, but the current device is ",
            to_string(current_device()), ". Use fp32, or device cpu.");
}

}  // namespace detail
}  // namespace bitgrad
