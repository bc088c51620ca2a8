// Rules shared by all implementations of runtime.h and tensor_map.h.
#include <atomic>
#include <cstdlib>
#include <string_view>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "cuda/runtime/runtime.h"
#include "cuda/runtime/tensor_map.h"

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

TensorMap make_tensor_map(const void* data, int64_t columns, int64_t rows, int64_t stride, int box_rows) {
  require(reinterpret_cast<uintptr_t>(data) % 16 == 0, "tensor map", "address: got ", data,
          ", expected a multiple of 16.");
  require(stride % 16 == 0 && stride >= 0 && stride < (int64_t{1} << 40), "tensor map", "row stride: got ", stride,
          " bytes, expected a multiple of 16 below 2^40.");
  require(columns >= 1 && rows >= 1 && columns <= (int64_t{1} << 32) && rows <= (int64_t{1} << 32), "tensor map",
          "matrix: got [", rows, ", ", columns, "] bytes, expected sizes of 1 to 2^32.");
  require(box_rows >= 1 && box_rows <= 256, "tensor map", "box: got ", box_rows, " rows, expected 1 to 256.");
  return detail::encode_tensor_map(data, columns, rows, stride, box_rows);
}

}  // namespace bitgrad::cuda
