// The cases of a layer on a real GPU: BITGRAD_TEST_DEVICE=cuda BITGRAD_CUDA_MANAGED=1 BITGRAD_CUDA_SYNC=1. They look at
// its memory from the host, so memory is managed, and launches and copies have ended when the call returns.
#include "cuda/runtime/runtime.h"
#include "support/device_run.h"

namespace {

[[maybe_unused]] const bool g_installed = [] {
  bitgrad::test::launches_on_device = bitgrad::cuda::detail::launches;
  bitgrad::cuda::detail::launches();  // counts from the first call on
  return true;
}();

}  // namespace
