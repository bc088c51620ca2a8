// Launch rules shared by all implementations of runtime.h.
#include <atomic>
#include <cstdlib>
#include <string_view>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "cuda/runtime/runtime.h"

namespace bitgrad::cuda {
namespace {

std::atomic<bool>& synchronous() {
  static std::atomic<bool> on{[] {
    const char* const text = std::getenv("BITGRAD_CUDA_SYNC");
    return text != nullptr && std::string_view(text) == "1";
  }()};
  return on;
}

}  // namespace

void detail::require_device(const char* kernel) {
  if (!current_device().is_cpu()) return;
  fail_with(ErrorCode::kDevice, kernel,
            "launch: the current device is the CPU, expected a CUDA device: what is allocated now is memory of the "
            "host. Hint: DeviceGuard guard(Device::cuda()) around the launch and its allocations.");
}

bool detail::synchronous_launches() { return synchronous().load(std::memory_order_relaxed); }
void detail::set_synchronous_launches(bool on) { synchronous().store(on); }

}  // namespace bitgrad::cuda
