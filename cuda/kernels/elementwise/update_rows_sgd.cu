#include "cuda/kernels/elementwise/update_rows_kernel.h"

namespace bitgrad::cuda {

void launch_sgd_rows(const SgdArgs& update, const SweepCall& call, const LaunchShape& shape) {
  if (update.momentum_buffer != nullptr) return sweep::launch_rows(sgd_rule<true>(update), call, shape);
  sweep::launch_rows(sgd_rule<false>(update), call, shape);
}

}  // namespace bitgrad::cuda
