// Pointwise functions of unary.inc: y = f(x), gx = gy * f'(x). For bf16 x, y is bf16 too: f is computed in fp32 and
// rounded once.
#include "bitgrad/ops/unary.h"
#include "bitgrad/ops/ops.h"
#include "kernels/elementwise.h"
#include "ops/common.h"

namespace bitgrad {
namespace {

struct Unary {
  static constexpr std::string_view kName = "unary";
  struct Saved {
    Tensor x;
    UnaryOp op{};
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in, UnaryOp op) {
    const Tensor& x = in[0];
    require_values(unary_name(op), "x", x);
    Tensor y = Tensor::empty(x.shape(), x.dtype());
    if (x.dtype() == dtypes::bf16)
      kernels::unary_forward_bf16(op, x.numel(), x.as<uint16_t>(), y.as<uint16_t>());
    else if (x.dtype() == dtypes::fp64)
      kernels::unary_forward(op, x.numel(), x.as<double>(), y.as<double>());
    else
      kernels::unary_forward(op, x.numel(), x.as<float>(), y.as<float>());
    s = {keep(x), op};
    return y;
  }
  static void backward(Saved& s, std::span<const Tensor> gy_edge, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    const Tensor gy = wide(gy_edge[0]);
    Tensor gx = Tensor::empty(gy.shape(), gy.dtype());
    if (s.x.dtype() == dtypes::bf16)
      kernels::unary_backward_bf16(s.op, gy.numel(), s.x.as<uint16_t>(), gy.as<float>(), gx.as<float>());
    else if (gy.dtype() == dtypes::fp64)
      kernels::unary_backward(s.op, gy.numel(), s.x.as<double>(), gy.as<double>(), gx.as<double>());
    else
      kernels::unary_backward(s.op, gy.numel(), s.x.as<float>(), gy.as<float>(), gx.as<float>());
    g[0].set_rounded(gx);
  }
};

}  // namespace

Var unary(UnaryOp op, const Var& x) { return apply<Unary>({x}, op); }

}  // namespace bitgrad
