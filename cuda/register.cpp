#include "cuda/register.h"

#include <mutex>

#include "bitgrad/base/device_work.h"
#include "cuda/runtime/backend.h"
#include "cuda/runtime/prefetch.h"
#include "cuda/runtime/step_graph.h"

namespace bitgrad {
namespace cuda {

#define BITGRAD_CUDA_FAMILY(name) void register_##name();
#include "cuda/families.inc"
#undef BITGRAD_CUDA_FAMILY

KernelTable& cuda_kernel_table() {
  static KernelTable table;
  return table;
}

namespace {

constexpr DeviceWorkMakers kWork{[]() -> std::unique_ptr<Prefetch> { return std::make_unique<PrefetchStream>(); },
                                 []() -> std::unique_ptr<StepRecord> { return std::make_unique<StepGraph>(); }};

void register_all() {
  register_kernel_table(DeviceKind::kCuda, &cuda_kernel_table());
  register_device_work(DeviceKind::kCuda, &kWork);
#define BITGRAD_CUDA_FAMILY(name) register_##name();
#include "cuda/families.inc"
#undef BITGRAD_CUDA_FAMILY
  // Last, because whoever finds the backend may use everything above.
  register_device_backend(DeviceKind::kCuda, &cuda_backend());
}

}  // namespace
}  // namespace cuda

void install_cuda() {
  static std::once_flag once;
  std::call_once(once, cuda::register_all);
}

}  // namespace bitgrad
