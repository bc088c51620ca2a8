// Registers the listed kernel of family reduce.
#include "cuda/kernels/reduce/reduce_cuda.h"

namespace bitgrad::cuda {

void register_reduce() {
  static constexpr Kernel<ReduceArgs> kKernels[] = {
      {{"reduce", "reduce_lanes_cuda", DeviceKind::kCuda, isa::kAnyCuda, SumOrder::kLanes},
       supports_all<ReduceArgs>,
       no_cost<ReduceArgs>,
       reduce_lanes_cuda}};
  reduce_kernels().add(kKernels);
}

}  // namespace bitgrad::cuda
