// Tensors as strided arrays of family pointwise: what broadcasts, moves axes, cuts and joins.
#pragma once

#include <string_view>
#include <vector>

#include "bitgrad/kernels/pointwise.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// fp32 or bf16 (or fp64), canonical, dense, without scales; else Error.
void require_activation(std::string_view op, std::string_view what, const Tensor& x);
// Canonical, dense, of any dtype; codes without scales or with one for all; else Error.
void require_movable(std::string_view op, std::string_view what, const Tensor& x);
// Axis of a shape of this rank; negative ones count from the end. Throws Error.
int64_t axis_in(std::string_view op, int64_t axis, const Tensor& x);

// The shape of both by NumPy's rules: axes are compared from the last, sizes are equal or one of them is 1. Throws
// Error that names both.
Shape broadcast_shape(std::string_view op, const Tensor& a, const Tensor& b);
// y[i] = f(a[i], b[i]) of `shape`, whose axes a and b may lack or repeat; y in `dtype`. Operands fp32 or bf16, or fp64.
Tensor broadcast(kernels::PointwiseOp op, const Tensor& a, const Tensor& b, const Shape& shape, DType dtype);
// g (fp32 or fp64, dense) summed over the axes that `shape` lacks or has once: what the gradient of a repeated operand
// is. Each sum in the order of docs/numerics.md section 8 over its elements of g in row-major order.
Tensor sum_to_shape(const Tensor& g, const Shape& shape);

// A tensor with its axes in another order: axis i of the result is axis axes[i]. fp32 where x is bf16 and `widen`.
Tensor permuted(const Tensor& x, const std::vector<int64_t>& axes, bool widen);
// Copies part [begin, begin + size of the axis in `part`) along an axis of `whole`, out of it or into it. Equal dtypes,
// or out of a bf16 whole into an fp32 part.
void copy_out(const Tensor& full, int64_t axis, int64_t begin, const Tensor& part);
void copy_in(const Tensor& part, int64_t axis, int64_t begin, const Tensor& full);

}  // namespace bitgrad
