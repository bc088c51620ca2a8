#include "cuda/register.h"

#include <mutex>

#include "bitgrad/base/device.h"
#include "cuda/dist/nccl.h"
#include "cuda/kernels/contracts.h"
#include "cuda/runtime/backend.h"
#include "cuda/runtime/nvtx.h"
#include "cuda/runtime/step_graph.h"

namespace bitgrad {
namespace cuda {

void register_gemm();  // kernels/gemm/register.cpp
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

// The kernels of families that have alternatives.
template <typename Args>
constexpr Kernel<Args> listed(std::string_view family, std::string_view name, SumOrder order,
                              bool (*supports)(const Args&), void (*run)(const Args&)) {
  return {{family, name, DeviceKind::kCuda, isa::kAnyCuda, order}, supports, no_cost<Args>, run};
}

constexpr Kernel<ReduceArgs> kReduceKernels[] = {
    listed("reduce", "reduce_lanes_cuda", SumOrder::kLanes, supports_all<ReduceArgs>, reduce_lanes_cuda)};

bool sign_supports(const QuantizeArgs& args) {
  return args.rule == CodeRule::kSign && args.dtype.kind() == DTypeKind::kSign && args.dtype.bits() == 1;
}
constexpr Kernel<QuantizeArgs> kQuantizeKernels[] = {
    listed("quantize", "quantize_sign_cuda", SumOrder::kExact, sign_supports, quantize_sign_cuda),
    listed("quantize", "quantize_any_cuda", SumOrder::kExact, supports_all<QuantizeArgs>, quantize_any_cuda)};

// Layouts that only CPU products read have no kernel here.
template <const Layout& kTo>
bool packs_to(const PackArgs& args) {
  return args.to == kTo && kTo.info().supports(args.dtype);
}
constexpr Kernel<PackArgs> kPackKernels[] = {
    listed("pack", "pack_canonical_cuda", SumOrder::kExact, packs_to<layouts::canonical>, pack_canonical_cuda),
    listed("pack", "pack_transposed_cuda", SumOrder::kExact, packs_to<layouts::transposed>, pack_transposed_cuda),
    listed("pack", "pack_planes_cuda", SumOrder::kExact, packs_to<layouts::planes>, pack_planes_cuda),
    listed("pack", "pack_frag64_cuda", SumOrder::kExact, packs_to<layouts::frag64>, pack_frag64_cuda)};

constexpr DeviceWorkMakers kWork{[]() -> std::unique_ptr<Prefetch> { return std::make_unique<PrefetchStream>(); },
                                 []() -> std::unique_ptr<StepRecord> { return std::make_unique<StepGraph>(); }};

void register_all() {
  register_kernel_table(DeviceKind::kCuda, &kTable);
  register_device_work(DeviceKind::kCuda, &kWork);
  reduce_kernels().add(kReduceKernels);
  quantize_kernels().add(kQuantizeKernels);
  pack_kernels().add(kPackKernels);
  register_device_transpose(transpose_cuda);
  add_library(&cuda_versions);
  register_gemm();
  register_device_links(DeviceKind::kCuda, &kNcclLinks);
  add_library(&describe_nccl);
#define BITGRAD_MAP_LAYER(name) register_##name##_maps();
#include "cuda/map_layers.inc"
#undef BITGRAD_MAP_LAYER
#if !defined(BITGRAD_CUDA_EMULATED)
  install_nvtx();
#endif
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
