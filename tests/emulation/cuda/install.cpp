// Makes the emulated devices the CUDA devices of every program that links the emulation.
#include "bitgrad/base/device.h"
#include "cuda/register.h"

namespace {
[[maybe_unused]] const bool installed =
    (bitgrad::register_backend_installer(bitgrad::DeviceKind::kCuda, bitgrad::install_cuda), true);
}  // namespace
