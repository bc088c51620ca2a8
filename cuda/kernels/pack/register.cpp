// Registers family pack and the transposition used by tensors. Layouts that only CPU products read have no kernel here.
#include "cuda/kernels/pack/frag64.h"
#include "cuda/kernels/pack/pack_cuda.h"
namespace bitgrad::cuda {
namespace {

template <const Layout& kTo>
constexpr Kernel<PackArgs> pack_to(std::string_view name, void (*run)(const PackArgs&)) {
  return {{"pack", name, DeviceKind::kCuda, isa::kAnyCuda, SumOrder::kExact},
          [](const PackArgs& args) { return args.to == kTo && kTo.info().supports(args.dtype); },
          no_cost<PackArgs>,
          run};
}

constexpr Kernel<PackArgs> kKernels[] = {
    pack_to<layouts::canonical>("pack_canonical_cuda", pack_canonical_cuda),
    pack_to<layouts::transposed>("pack_transposed_cuda", pack_transposed_cuda),
    pack_to<layouts::planes>("pack_planes_cuda", pack_planes_cuda),
    pack_to<layouts::frag64>("pack_frag64_cuda", pack_frag64_cuda),
};

}  // namespace

void register_pack() {
  pack_kernels().add(kKernels);
  register_device_transpose(transpose_cuda);
}

}  // namespace bitgrad::cuda
