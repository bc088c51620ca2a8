// y = elements [begin, end) along an axis of x. gx = gy there, +0 elsewhere.
#include "bitgrad/ops/ops.h"
#include "ops/common.h"
#include "ops/strided.h"

namespace bitgrad {
namespace {

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

}  // namespace

Var slice(const Var& x, int64_t axis, int64_t begin, int64_t end) { return apply<Slice>({x}, axis, begin, end); }

}  // namespace bitgrad
