#include "ops/strided.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "ops/common.h"
#include "ops/map/codes.h"
#include "ops/map/linear.h"

namespace bitgrad {

void require_activation(std::string_view op, std::string_view what, const Tensor& x) {
  const bool number = x.dtype() == dtypes::fp32 || x.dtype() == dtypes::bf16 || x.dtype() == dtypes::fp64;
  require(number && !x.quant(), op, what, " must be fp32 or bf16 (or fp64), got ", x,
          x.dtype().is_float() ? "" : ". Dequantize it first");
  require(x.contiguous(), op, what, " must be dense, got a view of ", x);
}

void require_movable(std::string_view op, std::string_view what, const Tensor& x) {
  require(x.contiguous(), op, what, " must be dense, got ",
          x.layout() == layouts::canonical ? "a view of " : "another layout of ", x);
  require(!x.quant() || x.quant()->granularity.kind == Granularity::kTensor, op, what, " (", x, ") has scales per ",
          x.quant() ? x.quant()->granularity : Granularity{},
          "; only one scale for the tensor moves with its elements. Dequantize it first");
}

int64_t axis_in(std::string_view op, int64_t axis, const Tensor& x) {
  const int64_t rank = x.shape().rank();
  require(axis >= -rank && axis < rank, op, "axis ", axis, " of x ", x, ": expected ", -rank, " .. ", rank - 1);
  return axis < 0 ? axis + rank : axis;
}

// ---- broadcasting ----

Shape broadcast_shape(std::string_view op, const Tensor& a, const Tensor& b) {
  if (a.shape() == b.shape()) return a.shape();
  const Shape &p = a.shape(), &q = b.shape();
  const int64_t rank = std::max(p.rank(), q.rank());
  std::vector<int64_t> dims(static_cast<size_t>(rank));
  for (int64_t i = 1; i <= rank; ++i) {
    const int64_t m = i <= p.rank() ? p[-i] : 1, n = i <= q.rank() ? q[-i] : 1;
    require(m == n || m == 1 || n == 1, op, "operands differ: got ", a, " and ", b);
    dims[static_cast<size_t>(rank - i)] = m == 1 ? n : m;
  }
  require(rank <= kernels::kPointwiseAxes, op, "at most ", kernels::kPointwiseAxes, " axes are broadcast: got ", a,
          " and ", b, ". Reshape them to fewer");
  return Shape(dims);
}

namespace {

// The axes that a kernel iterates over: merged into one if the operand has the same shape, else right-aligned.
void put_sizes(const Shape& shape, bool as_one, int64_t* size) {
  std::fill(size, size + kernels::kPointwiseAxes, int64_t{1});
  if (as_one)
    size[kernels::kPointwiseAxes - 1] = shape.numel();
  else
    for (int64_t i = 1; i <= shape.rank(); ++i) size[kernels::kPointwiseAxes - i] = shape[-i];
}

// Steps of a dense operand along those axes; 0 along broadcast axes.
void put_steps(const Shape& operand, const Shape& shape, bool as_one, int64_t* step) {
  std::fill(step, step + kernels::kPointwiseAxes, int64_t{0});
  if (as_one) {
    step[kernels::kPointwiseAxes - 1] = 1;
    return;
  }
  int64_t behind = 1;
  for (int64_t i = 1; i <= operand.rank(); ++i) {
    if (operand[-i] != 1 || shape[-i] == 1) step[kernels::kPointwiseAxes - i] = behind;
    behind *= operand[-i];
  }
}

}  // namespace

Tensor broadcast(kernels::PointwiseOp op, const Tensor& a, const Tensor& b, const Shape& shape, DType dtype) {
  Tensor y = Tensor::empty(shape, dtype);
  const bool as_one = a.shape() == shape && b.shape() == shape;
  const bool plain = as_one && a.dtype() == dtypes::fp32 && b.dtype() == dtypes::fp32 && dtype == dtypes::fp32;
  if (plain && op == kernels::PointwiseOp::add) {
    kernels::add(y.numel(), a.as<float>(), b.as<float>(), y.as<float>());
    return y;
  }
  if (plain && op == kernels::PointwiseOp::mul) {
    kernels::mul(y.numel(), a.as<float>(), b.as<float>(), y.as<float>());
    return y;
  }
  kernels::PointwiseArgs args;
  args.op = op;
  args.a = {a.data(), a.dtype(), {}};
  args.b = {b.data(), b.dtype(), {}};
  args.y = {y.data(), dtype, {}};
  put_sizes(shape, as_one, args.size);
  put_steps(a.shape(), shape, as_one, args.a.step);
  put_steps(b.shape(), shape, as_one, args.b.step);
  put_steps(shape, shape, as_one, args.y.step);
  kernels::pointwise(args);
  return y;
}

namespace {

// Sums of the rows of a dense [rows, cols] matrix, or of its columns.
Tensor reduced(const Tensor& g, int64_t rows, int64_t cols, bool of_rows, const Shape& shape) {
  Tensor out = Tensor::zeros(shape, g.dtype());
  if (g.dtype() == dtypes::fp64) {
    for (int64_t i = 0; i < rows * cols; ++i) out.as<double>()[of_rows ? i / cols : i % cols] += g.as<double>()[i];
    return out;
  }
  kernels::ReduceArgs args;
  // A single sum of many elements uses axis kAll to spread over threads; the order is the same.
  args.axis = out.numel() == 1 ? kernels::ReduceAxis::kAll
                               : (of_rows ? kernels::ReduceAxis::kRows : kernels::ReduceAxis::kColumns);
  args.rows = rows;
  args.cols = args.ldx = cols;
  args.x = g.as<float>();
  args.out = out.as<float>();
  if (out.numel() > 0) kernels::reduce(args);
  return out;
}

}  // namespace

Tensor sum_to_shape(const Tensor& g, const Shape& shape) {
  if (g.numel() == shape.numel() && g.numel() != 0) return g.reshape(shape);
  std::vector<int64_t> kept, repeated;
  int64_t outputs = 1, terms = 1;
  for (int64_t i = 0; i < g.shape().rank(); ++i) {
    const int64_t back = g.shape().rank() - i;
    const bool sums = back > shape.rank() || (shape[-back] == 1 && g.shape()[i] != 1);
    (sums ? repeated : kept).push_back(i);
    (sums ? terms : outputs) *= g.shape()[i];
  }
  if (repeated.empty()) return g.reshape(shape);
  if (kept.empty() || kept.back() < repeated.front()) return reduced(g, outputs, terms, true, shape);
  if (repeated.back() < kept.front()) return reduced(g, terms, outputs, false, shape);
  kept.insert(kept.end(), repeated.begin(), repeated.end());
  return reduced(permuted(g, kept, false), outputs, terms, true, shape);
}

// ---- moving elements ----

namespace {

// The units of a copy: elements, or words of packed rows.
struct Unit {
  DType dtype;
  int64_t per_row;  // units per row of the tensor, including padding
};
Unit unit_of(const Tensor& t) {
  if (t.dtype().bits() >= 8) return {t.dtype(), t.stride() * 8 / t.dtype().bits()};
  return {dtypes::int64, t.stride() / 8};
}

bool is_last(const Tensor& t, int64_t axis) { return axis == t.shape().rank() - 1; }
bool is_packed(const Tensor& t) { return t.dtype().bits() < 8; }

// A tensor seen around one axis: [outer, the axis, inner], with steps in units.
struct Around {
  int64_t outer = 1, inner = 1, outer_step = 0, step = 1;
};
Around around(const Tensor& t, int64_t axis) {
  const Shape& shape = t.shape();
  const Unit unit = unit_of(t);
  Around out;
  for (int64_t i = 0; i < axis; ++i) out.outer *= shape[i];
  if (is_last(t, axis)) {
    out.outer_step = unit.per_row;
    return out;
  }
  for (int64_t i = axis + 1; i + 1 < shape.rank(); ++i) out.inner *= shape[i];
  out.inner *= unit.per_row;
  out.step = out.inner;
  out.outer_step = shape[axis] * out.inner;
  return out;
}

// Element (or word) `begin` along the axis of the whole is element 0 of the part.
kernels::StridedCopyArgs part_of(const Tensor& full, const Tensor& part, int64_t axis) {
  const Around w = around(full, axis), p = around(part, axis);
  kernels::StridedCopyArgs args;
  const int64_t size[] = {w.outer, part.shape()[axis], w.inner};
  std::copy(size, size + 3, args.size + 1);
  args.x.dtype = unit_of(full).dtype;
  args.y.dtype = unit_of(part).dtype;
  const int64_t whole_steps[] = {w.outer_step, w.step, 1}, part_steps[] = {p.outer_step, p.step, 1};
  std::copy(whole_steps, whole_steps + 3, args.x.step + 1);
  std::copy(part_steps, part_steps + 3, args.y.step + 1);
  return args;
}

void* place_of(const Tensor& full, int64_t axis, int64_t begin) {
  const Unit unit = unit_of(full);
  return static_cast<char*>(full.data()) + begin * around(full, axis).step * unit.dtype.bits() / 8;
}

}  // namespace

Tensor permuted(const Tensor& x, const std::vector<int64_t>& axes, bool widen) {
  const Unit unit = unit_of(x);
  const int64_t rank = x.shape().rank();
  std::vector<int64_t> dims, step(static_cast<size_t>(rank), 1);
  for (const int64_t axis : axes) dims.push_back(x.shape()[axis]);
  for (int64_t i = rank - 2; i >= 0; --i)
    step[static_cast<size_t>(i)] = i == rank - 2 ? unit.per_row : step[static_cast<size_t>(i + 1)] * x.shape()[i + 1];
  const DType dtype = widen && x.dtype() == dtypes::bf16 ? dtypes::fp32 : x.dtype();
  const Tensor y = x.dtype().is_code() ? Tensor::zeros(Shape(dims), dtype) : Tensor::empty(Shape(dims), dtype);
  kernels::StridedCopyArgs args;
  args.x = {x.data(), unit.dtype, {}};
  args.y = {y.data(), dtype == x.dtype() ? unit.dtype : dtype, {}};
  int64_t behind = 1;
  for (int64_t i = rank - 1; i >= 0; --i) {
    const int64_t at = kernels::kPointwiseAxes - rank + i, from = axes[static_cast<size_t>(i)];
    const bool row = i == rank - 1;
    args.size[at] = row && is_packed(x) ? unit.per_row : dims[static_cast<size_t>(i)];
    args.x.step[at] = step[static_cast<size_t>(from)];
    args.y.step[at] = behind;
    behind = row ? unit_of(y).per_row : behind * dims[static_cast<size_t>(i)];
  }
  kernels::strided_copy(args);
  return y.with_quant(x.quant());
}

void copy_out(const Tensor& full, int64_t axis, int64_t begin, const Tensor& part) {
  if (part.numel() == 0) return;
  if (is_packed(full) && is_last(full, axis)) {
    const int bits = full.dtype().bits();
    const int64_t words = part.stride() / 8;
    run_map(maps::CopyBits{static_cast<const uint64_t*>(full.data()), full.stride() / 8, begin * bits,
                           part.cols() * bits, static_cast<uint64_t*>(part.data()), words},
            part.rows() * words);
    return;
  }
  kernels::StridedCopyArgs args = part_of(full, part, axis);
  args.x.data = place_of(full, axis, begin);
  args.y.data = part.data();
  kernels::strided_copy(args);
}

void copy_in(const Tensor& part, int64_t axis, int64_t begin, const Tensor& full) {
  if (part.numel() == 0) return;
  if (is_packed(full) && is_last(full, axis)) {
    const int bits = full.dtype().bits();
    const maps::PlaceBits place{
        static_cast<const uint64_t*>(part.data()), part.stride() / 8, begin * bits, part.cols() * bits,
        static_cast<uint64_t*>(full.data()),       full.stride() / 8};
    run_map(place, part.rows() * place.words());
    return;
  }
  kernels::StridedCopyArgs args = part_of(full, part, axis);
  std::swap(args.x.step, args.y.step);
  std::swap(args.x.dtype, args.y.dtype);
  args.x.data = part.data();
  args.y.data = place_of(full, axis, begin);
  kernels::strided_copy(args);
}

}  // namespace bitgrad
