#include "bitgrad/dtype/codec.h"

#include <atomic>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"

namespace bitgrad {
namespace {

std::atomic<TransposeFunction> g_transpose{nullptr};

}  // namespace

void register_device_transpose(TransposeFunction function) { g_transpose.store(function, std::memory_order_release); }

void transpose_on_device(const TransposeArgs& args) {
  const TransposeFunction function = g_transpose.load(std::memory_order_acquire);
  if (function == nullptr)
    fail_with(ErrorCode::kDevice, "transpose", to_string(current_device()),
              " has no kernels. Use the CPU (device.kind=cpu).");
  function(args);
}

}  // namespace bitgrad
