#include "dist/add.h"

#include "bitgrad/kernels/pointwise.h"

namespace bitgrad {

void detail::add_left(const Tensor& left, const Tensor& into) {
  PointwiseArgs args;
  args.op = PointwiseOp::add;
  args.size[kPointwiseAxes - 1] = into.numel();
  args.a.data = left.data();
  args.b.data = args.y.data = into.data();
  args.a.dtype = args.b.dtype = args.y.dtype = into.dtype();
  args.a.step[kPointwiseAxes - 1] = args.b.step[kPointwiseAxes - 1] = args.y.step[kPointwiseAxes - 1] = 1;
  pointwise(args);
}

}  // namespace bitgrad
