// Makes the emulated devices the CUDA devices of every program that links the emulation.
#include "bitgrad/base/device.h"
#include "cuda/register.h"
#include "cuda/runtime/runtime.h"
#include "support/device_run.h"

namespace {
[[maybe_unused]] const bool installed = [] {
  bitgrad::register_backend_installer(bitgrad::DeviceKind::kCuda, bitgrad::install_cuda);
  bitgrad::test::launches_on_device = bitgrad::cuda::detail::launches;
  return true;
}();
}  // namespace
