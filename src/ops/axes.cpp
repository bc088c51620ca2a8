// Ops that move elements without computing.
#include <algorithm>

#include "bitgrad/ops/ops.h"
#include "kernels/flag.h"
#include "ops/common.h"
#include "ops/map/codes.h"
#include "ops/strided.h"

namespace bitgrad {
namespace {

// y = x with permuted axes: axis i of y is axis axes[i] of x. gx: the inverse permutation.
struct Permute {
  static constexpr std::string_view kName = "permute";
  struct Saved {
    std::vector<int64_t> inverse;
  };

  // `axes` are a permutation of 0, 1, ...
  static std::vector<int64_t> checked(const Tensor& x, const std::vector<int64_t>& axes) {
    const int64_t rank = x.shape().rank();
    require_movable(kName, "x", x);
    require(rank <= kernels::kPointwiseAxes, kName, "x ", x, " has ", rank, " axes, expected at most ",
            kernels::kPointwiseAxes, ". Reshape it to fewer");
    require(static_cast<int64_t>(axes.size()) == rank, kName, "got ", axes.size(), " axes for x ", x, ", expected ",
            rank);
    std::vector<int64_t> out;
    for (const int64_t axis : axes) {
      out.push_back(axis_in(kName, axis, x));
      require(std::count(out.begin(), out.end(), out.back()) == 1, kName, "axis ", out.back(), " of x ", x,
              " is named twice");
    }
    require(x.dtype().bits() >= 8 || rank == 0 || out.back() == rank - 1, kName, "the last axis of x ", x,
            " is packed and stays the last: got axis ", rank == 0 ? 0 : out.back(), " there. Dequantize x first");
    return out;
  }

  static Tensor forward(Saved& s, std::span<const Tensor> in, const std::vector<int64_t>& given) {
    const std::vector<int64_t> axes = checked(in[0], given);
    s.inverse.resize(axes.size());
    for (size_t i = 0; i < axes.size(); ++i) s.inverse[static_cast<size_t>(axes[i])] = static_cast<int64_t>(i);
    return permuted(in[0], axes, false);
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (g[0].wanted()) g[0].set_rounded(permuted(gy[0], s.inverse, true));
  }
};

// y = elements [begin, end) along an axis of x. gx = gy there, +0 elsewhere.
struct Slice {
  static constexpr std::string_view kName = "slice";
  struct Saved {
    Shape shape;
    int64_t axis = 0, begin = 0;
  };

  static Tensor forward(Saved& s, std::span<const Tensor> in, int64_t given, int64_t begin, int64_t end) {
    const Tensor& x = in[0];
    const int64_t axis = axis_in(kName, given, x);
    const bool view = axis == 0 && x.shape().rank() > 1;  // slicing rows supports scales of any granularity
    require_movable(kName, "x", view ? x.without_quant() : x);
    require(begin >= 0 && begin <= end && end <= x.shape()[axis], kName, "[", begin, ", ", end, ") of axis ", axis,
            " of x ", x, ", which has ", x.shape()[axis], " elements there");
    s = {x.shape(), axis, begin};
    if (view) return x.row_slice(begin, end);
    std::vector<int64_t> dims = x.shape().dims();
    dims[static_cast<size_t>(axis)] = end - begin;
    const Tensor y =
        x.dtype().is_code() ? Tensor::zeros(Shape(dims), x.dtype()) : Tensor::empty(Shape(dims), x.dtype());
    copy_out(x, axis, begin, y);
    return y.with_quant(x.quant());
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    const Tensor wide_gy = wide(gy[0]), gx = Tensor::zeros(s.shape, wide_gy.dtype());
    copy_in(wide_gy, s.axis, s.begin, gx);
    g[0].set_rounded(gx);
  }
};

constexpr std::string_view kConcatenate = "concatenate";

// Requires both to be absent, or both present with equal bits. On a device the comparison is reported when errors are
// polled.
void require_equal_numbers(size_t part, const std::shared_ptr<const Tensor>& a,
                           const std::shared_ptr<const Tensor>& b) {
  const auto differ = [part] {
    fail(kConcatenate, "scale or zero point of part ", part,
         " differs from that of part 0: codes are joined where one scale serves all. Dequantize them first");
  };
  if ((a == nullptr) != (b == nullptr)) differ();
  if (a == nullptr || a == b) return;
  const FlagWord flag;
  run_map(
      maps::FlagUnequal{static_cast<const uint32_t*>(a->data()), static_cast<const uint32_t*>(b->data()), flag.word()},
      a->numel());
  flag.check(differ);
}

void require_equal_params(size_t part, const Tensor& first, const Tensor& other) {
  const auto &a = first.quant(), &b = other.quant();
  if (a == b) return;
  require((a == nullptr) == (b == nullptr), kConcatenate, "part 0 (", first, ") ", a ? "has a scale" : "has none",
          ", part ", part, " (", other, ") ", b ? "has one" : "has none", ". Quantize or dequantize both");
  require_equal_numbers(part, a->scale, b->scale);
  require_equal_numbers(part, a->zero, b->zero);
  require_equal_numbers(part, a->offset, b->offset);
}

// y = the parts, concatenated along an axis; the gradient of each part is its slice of gy.
struct Concatenate {
  static constexpr std::string_view kName = kConcatenate;
  struct Saved {
    std::vector<Shape> shapes;
    int64_t axis = 0;
  };

  // Returns the shape of the result.
  static Shape checked(std::span<const Tensor> in, int64_t axis) {
    std::vector<int64_t> dims = in[0].shape().dims();
    for (size_t i = 0; i < in.size(); ++i) {
      require_movable(kName, concat("part ", i), in[i]);
      std::vector<int64_t> other = in[i].shape().dims();
      const bool fits = other.size() == dims.size() && in[i].dtype() == in[0].dtype();
      if (fits) other[static_cast<size_t>(axis)] = dims[static_cast<size_t>(axis)];
      require(fits && other == dims, kName, "part ", i, " (", in[i], ") does not fit part 0 (", in[0],
              "): parts have one dtype, and one size but along axis ", axis);
      if (i > 0) require_equal_params(i, in[0], in[i]);
    }
    int64_t length = 0;
    for (const Tensor& part : in) length += part.shape()[axis];
    dims[static_cast<size_t>(axis)] = length;
    return Shape(dims);
  }

  static Tensor forward(Saved& s, std::span<const Tensor> in, int64_t given) {
    s.axis = axis_in(kName, given, in[0]);
    const Shape shape = checked(in, s.axis);
    const DType dtype = in[0].dtype();
    const Tensor y = dtype.is_code() ? Tensor::zeros(shape, dtype) : Tensor::empty(shape, dtype);
    int64_t begin = 0;
    for (const Tensor& part : in) {
      s.shapes.push_back(part.shape());
      copy_in(part, s.axis, begin, y);
      begin += part.shape()[s.axis];
    }
    return y.with_quant(in[0].quant());
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    int64_t begin = 0;
    for (size_t i = 0; i < g.size(); ++i) {
      if (g[i].wanted()) {
        const DType dtype = gy[0].dtype() == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32;
        const Tensor part = Tensor::empty(s.shapes[i], dtype);
        copy_out(gy[0], s.axis, begin, part);
        g[i].set_rounded(part);
      }
      begin += s.shapes[i][s.axis];
    }
  }
};

}  // namespace

Var permute(const Var& x, const std::vector<int64_t>& axes) { return apply<Permute>({x}, axes); }
Var slice(const Var& x, int64_t axis, int64_t begin, int64_t end) { return apply<Slice>({x}, axis, begin, end); }
Var concatenate(const std::vector<Var>& parts, int64_t axis) {
  require(!parts.empty(), kConcatenate, "no parts to join");
  return apply<Concatenate>(parts, axis);
}

}  // namespace bitgrad
