#include "cuda/kernels/elementwise/update_rows_kernel.h"

namespace bitgrad::cuda {

void launch_adam_rows(const AdamArgs& update, const SweepCall& call, const LaunchShape& shape) {
  sweep::launch_rows(adam_rule(update), call, shape);
}

}  // namespace bitgrad::cuda
