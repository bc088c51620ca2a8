// Registers the listed kernels of family quantize.
#include "cuda/kernels/quantize/quantize_cuda.h"

namespace bitgrad::cuda {
namespace {

bool sign_supports(const QuantizeArgs& args) {
  return args.rule == CodeRule::kSign && args.dtype.kind() == DTypeKind::kSign && args.dtype.bits() == 1;
}

constexpr Kernel<QuantizeArgs> kKernels[] = {
    {{"quantize", "quantize_sign_cuda", DeviceKind::kCuda, isa::kAnyCuda, SumOrder::kExact},
     sign_supports,
     no_cost<QuantizeArgs>,
     quantize_sign_cuda},
    {{"quantize", "quantize_any_cuda", DeviceKind::kCuda, isa::kAnyCuda, SumOrder::kExact},
     supports_all<QuantizeArgs>,
     no_cost<QuantizeArgs>,
     quantize_any_cuda}};

}  // namespace

void register_quantize() { quantize_kernels().add(kKernels); }

}  // namespace bitgrad::cuda
