// y = X W^T (+ b) of integer codes, kept as int32 with a scale. docs/numerics.md section 4.
//   acc = sum_i qx qw, exact;  y = acc + rint(b / (sx * sw)), bias and sum clamped to int32
//   scale of y: sx * sw (rounded once)
// Backward: as for linear on the values, in fp32; gbias = column sums of gy (straight through the rounding of the
// bias).
#include "bitgrad/ops/ops.h"
#include "ops/common.h"
#include "ops/integer_product.h"
#include "ops/product/forward.h"
#include "ops/product/gradient.h"

namespace bitgrad {
namespace {

struct IntegerLinear {
  static constexpr std::string_view kName = "integer_linear";
  struct Saved {
    Tensor x, w;
    bool bias = false;
  };

  static void check(const Tensor& x, const Tensor& w, const Tensor& bias) {
    for (const auto& [name, t] : {std::pair{"x", &x}, std::pair{"w", &w}})
      require(t->shape().rank() == 2, kName, name, ": got ", *t, ", expected a matrix");
    detail::check_integer_product(kName, x, w, bias, x.cols());
    require(x.cols() == w.cols(), kName, "x has ", x.cols(), " features, w expects ", w.cols(), " (x ", x, ", w ", w,
            ")");
  }

  static Tensor forward(Saved& s, std::span<const Tensor> in) {
    const Tensor &x = in[0], &w = in[1], bias = in.size() > 2 ? in[2] : Tensor();
    check(x, w, bias);
    const auto params = detail::integer_product_params(x, w);
    const Tensor offsets = bias.defined() ? detail::rounded_bias(kName, bias, *params) : Tensor();
    const Tensor y = Tensor::empty({x.rows(), w.rows()}, dtypes::int32);
    detail::forward_product(x.without_quant(), w.without_quant(), {}, y);
    if (bias.defined()) detail::add_integer_bias(y, offsets);
    s = {keep(x), keep(w), bias.defined()};
    return y.with_quant(params);
  }

  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    const Tensor& gradient = gy[0];
    if (g[0].wanted())
      detail::gradient_product(ProductMode::kFp32, {"gx", "w", gradient, false, s.w, false, std::nullopt}, g[0]);
    if (g[1].wanted())
      detail::gradient_product(ProductMode::kFp32, {"gw", "x", gradient, true, s.x, false, std::nullopt}, g[1]);
    if (s.bias && g[2].wanted()) g[2].set_rounded(column_sums(wide(gradient)));
  }
};

}  // namespace

Var integer_linear(const Var& x, const Var& w, const Var& bias) {
  return bias.defined() ? apply<IntegerLinear>({x, w, bias}) : apply<IntegerLinear>({x, w});
}

}  // namespace bitgrad
