// Tensors as strided arrays of family pointwise: broadcasting, permuting axes, slicing and concatenating.
#pragma once

#include <string_view>
#include <vector>

#include "bitgrad/tensor/tensor.h"
#include "kernels/pointwise.h"

namespace bitgrad {

// Throws Error unless x is fp32, bf16 or fp64, canonical, dense and without scales.
void require_activation(std::string_view op, std::string_view what, const Tensor& x);
// Throws Error unless x is canonical and dense; any dtype, but codes must have no scales or a single one.
void require_movable(std::string_view op, std::string_view what, const Tensor& x);
// Normalizes an axis for this rank; negative ones count from the end. Throws Error if it is out of range.
int64_t axis_in(std::string_view op, int64_t axis, const Tensor& x);

// Broadcast shape by NumPy's rules: axes are aligned from the last; sizes must be equal or one of them 1. Throws Error
// that names both shapes.
Shape broadcast_shape(std::string_view op, const Tensor& a, const Tensor& b);
// y[i] = f(a[i], b[i]) with broadcasting to `shape`; y in `dtype`. Operands are fp32 or bf16, or fp64.
Tensor broadcast(kernels::PointwiseOp op, const Tensor& a, const Tensor& b, const Shape& shape, DType dtype);
// Sums g (fp32 or fp64, dense) over the axes that `shape` lacks or has with size 1: the gradient of a broadcast
// operand. Each sum is in the order of docs/numerics.md section 8 over its elements of g in row-major order.
Tensor sum_to_shape(const Tensor& g, const Shape& shape);

// Permutes axes: axis i of the result is axis axes[i]. With `widen`, a bf16 x gives an fp32 result.
Tensor permuted(const Tensor& x, const std::vector<int64_t>& axes, bool widen);
// Copies a part, [begin, begin + size of the axis in `part`) along an axis of `whole`, from or to the whole. Dtypes
// must be equal, except that a bf16 whole can be read into an fp32 part.
void copy_out(const Tensor& full, int64_t axis, int64_t begin, const Tensor& part);
void copy_in(const Tensor& part, int64_t axis, int64_t begin, const Tensor& full);

}  // namespace bitgrad
