// The kernel tables, and the public functions that call the current device's table.
#include "kernels/kernel_table.h"

#include <array>
#include <atomic>

#include "bitgrad/base/error.h"
#include "kernels/cpu_kernels.h"
#include "kernels/flag.h"

namespace bitgrad::kernels {
namespace {

constexpr KernelTable kCpuKernels{
#define BITGRAD_KERNEL(result, name, parameters, arguments) cpu::name,
#include "kernels/kernel_table.inc"
#undef BITGRAD_KERNEL
};

std::array<std::atomic<const KernelTable*>, kDeviceKinds> g_tables{&kCpuKernels};

}  // namespace

const KernelTable& kernel_table() {
  const Device device = current_device();
  const KernelTable* const table = g_tables[static_cast<size_t>(device.kind)].load(std::memory_order_acquire);
  if (table == nullptr)
    fail_with(ErrorCode::kDevice, "device", to_string(device), " has no kernels: its backend registered none.");
  return *table;
}

void register_kernel_table(DeviceKind kind, const KernelTable* table) {
  require(kind != DeviceKind::kCpu && static_cast<int>(kind) < kDeviceKinds, "register_kernel_table", "the kernels of ",
          to_string({kind, 0}), " cannot be replaced.");
  g_tables[static_cast<size_t>(kind)].store(table, std::memory_order_release);
}

#define BITGRAD_KERNEL(result, name, parameters, arguments) \
  result name parameters { return detail::present(kernel_table().name, #name) arguments; }
#include "kernels/kernel_table.inc"
#undef BITGRAD_KERNEL

}  // namespace bitgrad::kernels

namespace bitgrad {

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
