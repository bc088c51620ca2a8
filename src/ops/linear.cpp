// y[n,o] = sum_i x[n,i] * w[o,i] (+ bias[o]), where n runs over the rows of all leading axes of x;  gx = gy W;  gW =
// gy^T X;  gbias = column sums of gy. docs/numerics.md sections 4 and 5.
//
// Both backward products read the saved codes in canonical order, or transposed if linear planned it; no float copy of
// an operand is made.
#include "bitgrad/ops/ops.h"
#include "ops/common.h"
#include "ops/product/forward.h"
#include "ops/product/gradient.h"

namespace bitgrad {
namespace {

detail::GradientProduct product_gx(const Tensor& gy, const Tensor& w, bool per_group) {
  return {"gx", "w", gy, false, w, per_group, std::nullopt};
}
detail::GradientProduct product_gw(const Tensor& gy, const Tensor& x) {
  return {"gw", "x", gy, true, x, false, std::nullopt};
}

// x as gW reads it: in layout transposed if it was produced in that layout.
Tensor for_gw(const Tensor& x, const ProductModes& modes) {
  const Tensor transposed = modes.gw == ProductMode::kInt8 ? x.in_layout(layouts::transposed) : Tensor();
  return transposed.defined() ? transposed : x;
}

struct Linear {
  static constexpr std::string_view kName = "linear";
  struct Saved {
    Tensor x, w;
    bool bias = false;
    ProductMode gx = ProductMode::kFp32, gw = ProductMode::kFp32;
    bool gx_per_group = false;
    std::optional<RandomStream> sr;
  };

  static Tensor forward(Saved& s, std::span<const Tensor> in, const ProductModes& modes) {
    const Tensor &x = in[0], &w = in[1];
    require(x.shape().rank() >= 2 && w.shape().rank() == 2, kName, "x and w must be matrices: got x ", x, ", w ", w);
    require(x.cols() == w.cols(), kName, "x has ", x.cols(), " features, w expects ", w.cols(), " (x ", x, ", w ", w,
            ")");
    const bool f64 = x.dtype() == dtypes::fp64;
    require_result(kName, modes.y);
    const Tensor bias = checked_bias(kName, in);
    std::vector<int64_t> dims = x.shape().dims();
    dims.back() = w.rows();
    Tensor y = Tensor::empty(Shape(std::move(dims)), f64 ? dtypes::fp64 : modes.y);
    detail::forward_product(x, w, f64 ? Tensor() : bias, y, modes.row_alone);
    if (f64 && bias.defined())
      for (int64_t r = 0; r < y.rows(); ++r)
        for (int64_t c = 0; c < y.cols(); ++c) y.as<double>()[r * y.cols() + c] += bias.as<double>()[c];
    s = {keep(for_gw(x, modes)), keep(w), bias.defined(), modes.gx, modes.gw, modes.gx_per_group, std::nullopt};
    if (modes.sr != nullptr) s.sr = *modes.sr;
    return y;
  }

  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    detail::GradientProduct gx = product_gx(gy[0], s.w, s.gx_per_group), gw = product_gw(gy[0], s.x);
    gx.sr = gw.sr = s.sr;
    if (gw.sr) gw.sr->purpose = Purpose::kGradientWeight;
    if (g[0].wanted() && g[1].wanted() && s.gx == ProductMode::kInt8 && s.gw == ProductMode::kInt8)
      share_int8_codes(gx, gw);
    if (g[0].wanted()) gradient_product(s.gx, gx, g[0]);
    gx.gy_codes = Tensor();
    if (g[1].wanted()) gradient_product(s.gw, gw, g[1]);
    if (s.bias && g[2].wanted()) g[2].set_rounded(column_sums(wide(gy[0])));
  }
};

}  // namespace

Var linear(const Var& x, const Var& w, const Var& bias) { return linear(x, w, bias, ProductModes{}); }

Var linear(const Var& x, const Var& w, const Var& bias, const ProductModes& modes) {
  if (x.tracked() && w.defined()) check_product(modes.gx, product_gx({}, w.value(), modes.gx_per_group).form());
  if (w.tracked() && x.defined()) check_product(modes.gw, product_gw({}, x.value()).form());
  return bias.defined() ? apply<Linear>({x, w, bias}, modes) : apply<Linear>({x, w}, modes);
}

Var linear_simulated(const Var& x, const Var& w, const Var& bias, DType y, bool row_alone) {
  const auto as_float = [](const Var& v) { return v.dtype().is_float() && !v.value().quant() ? v : dequantize(v); };
  ProductModes modes;
  modes.y = y;
  modes.row_alone = row_alone;
  return linear(as_float(x), as_float(w), bias, modes);
}

}  // namespace bitgrad
