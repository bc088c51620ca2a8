#include "dist/add.h"

#include "kernels/pointwise.h"

namespace bitgrad {

void detail::add_left(DType dtype, int64_t n, const void* left, void* into) {
  kernels::PointwiseArgs args;
  args.op = kernels::PointwiseOp::add;
  args.size[kernels::kPointwiseAxes - 1] = n;
  args.a.data = left;
  args.b.data = args.y.data = into;
  args.a.dtype = args.b.dtype = args.y.dtype = dtype;
  args.a.step[kernels::kPointwiseAxes - 1] = args.b.step[kernels::kPointwiseAxes - 1] =
      args.y.step[kernels::kPointwiseAxes - 1] = 1;
  kernels::pointwise(args);
}

}  // namespace bitgrad
