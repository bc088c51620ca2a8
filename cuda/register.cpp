#include "cuda/register.h"

#include <mutex>

#include "bitgrad/base/device.h"
#include "cuda/kernels/contracts.h"
#include "cuda/runtime/backend.h"
#include "cuda/runtime/prefetch.h"
#include "cuda/runtime/step_graph.h"

namespace bitgrad {
namespace cuda {

#define BITGRAD_CUDA_FAMILY(name) void register_##name();
#include "cuda/families.inc"
#undef BITGRAD_CUDA_FAMILY
#define BITGRAD_MAP_LAYER(name) void register_##name##_maps();
#include "cuda/map_layers.inc"
#undef BITGRAD_MAP_LAYER

namespace {

constexpr KernelTable kTable{
#define BITGRAD_KERNEL(family, order, result, name, parameters, arguments) \
  {{#family, #name "_cuda", DeviceKind::kCuda, isa::kAnyCuda, SumOrder::order}, name##_cuda},
#include "kernels/kernel_table.inc"
#undef BITGRAD_KERNEL
};

constexpr DeviceWorkMakers kWork{[]() -> std::unique_ptr<Prefetch> { return std::make_unique<PrefetchStream>(); },
                                 []() -> std::unique_ptr<StepRecord> { return std::make_unique<StepGraph>(); }};

void register_all() {
  register_kernel_table(DeviceKind::kCuda, &kTable);
  register_device_work(DeviceKind::kCuda, &kWork);
#define BITGRAD_CUDA_FAMILY(name) register_##name();
#include "cuda/families.inc"
#undef BITGRAD_CUDA_FAMILY
#define BITGRAD_MAP_LAYER(name) register_##name##_maps();
#include "cuda/map_layers.inc"
#undef BITGRAD_MAP_LAYER
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
