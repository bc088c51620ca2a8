// y = softmax over the last axis of x; gx = y * (gy - sum gy * y). docs/numerics.md section 10.
#include "bitgrad/ops/ops.h"
#include "kernels/rowwise.h"
#include "ops/common.h"
#include "ops/strided.h"

namespace bitgrad {
namespace {

struct Softmax {
  static constexpr std::string_view kName = "softmax";
  struct Saved {
    Tensor y;
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in) {
    const Tensor& x = in[0];
    require_activation(kName, "x", x);
    require(x.shape().rank() > 0, kName, "x must have an axis to sum over, got ", x);
    Tensor y = Tensor::empty(x.shape(), x.dtype());
    kernels::softmax_rows({x.rows(), x.cols(), {x.data(), x.dtype()}, {y.data(), y.dtype()}});
    s.y = keep(y);
    return y;
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    const Tensor& y = s.y;
    const Tensor gx = Tensor::empty(y.shape(), y.dtype() == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32);
    kernels::softmax_rows_backward(
        {y.rows(), y.cols(), {y.data(), y.dtype()}, {gy[0].data(), gy[0].dtype()}, {gx.data(), gx.dtype()}});
    g[0].set_rounded(gx);
  }
};

}  // namespace

Var softmax(const Var& x) { return apply<Softmax>({x}); }

}  // namespace bitgrad
