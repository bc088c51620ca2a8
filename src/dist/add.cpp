#include "dist/add.h"

#include "kernels/pointwise.h"

namespace bitgrad {

void detail::add_left(const Tensor& left, const Tensor& into) {
  kernels::PointwiseArgs args;
  args.op = kernels::PointwiseOp::add;
  args.size[kernels::kPointwiseAxes - 1] = into.numel();
  args.a.data = left.data();
  args.b.data = args.y.data = into.data();
  args.a.dtype = args.b.dtype = args.y.dtype = into.dtype();
  args.a.step[kernels::kPointwiseAxes - 1] = args.b.step[kernels::kPointwiseAxes - 1] =
      args.y.step[kernels::kPointwiseAxes - 1] = 1;
  kernels::pointwise(args);
}

}  // namespace bitgrad
