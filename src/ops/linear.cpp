// y[n,o] = sum_i x[n,i] * w[o,i] (+ bias[o]), where n runs over the rows of all leading axes of x;  gx = gy W;  gW =
// gy^T X;  gbias = column sums of gy. docs/numerics.md sections 4 and 5.
//
// Both backward products read the saved codes in canonical order, or transposed if linear planned it; no float copy of
// an operand is made.
#include "bitgrad/ops/ops.h"
#include "ops/common.h"
#include "ops/integer_product.h"
#include "ops/product/gradient.h"
#include "ops/product/operand.h"
#include "ops/product/transposed.h"

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

// integer_linear: y = X W^T (+ b) of integer codes, kept as int32 with a scale. docs/numerics.md section 4.
//   acc = sum_i qx qw, exact;  y = acc + rint(b / (sx * sw)), bias and sum clamped to int32
//   scale of y: sx * sw (rounded once)
// Backward: as for linear on the values, in fp32; gbias = column sums of gy (straight through the rounding of the
// bias).
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
    if (g[0].wanted()) gradient_product(ProductMode::kFp32, product_gx(gy[0], s.w, false), g[0]);
    if (g[1].wanted()) gradient_product(ProductMode::kFp32, product_gw(gy[0], s.x), g[1]);
    if (s.bias && g[2].wanted()) g[2].set_rounded(column_sums(wide(gy[0])));
  }
};

// quantized_linear_dynamic: the input range is computed at run time. x is quantized (int8), rounded (bf16) or used as
// is (fp32), followed by linear. docs/numerics.md section 5. Gradients pass straight through the rounding of x (rule
// identity); the backward products have modes of their own.
constexpr std::string_view kDynamicLinear = "quantized_linear_dynamic";

Var as_fp32(const Var& x, const Var&, const DynamicLinearOptions&) { return x; }
Var as_bf16(const Var& x, const Var&, const DynamicLinearOptions&) { return cast(x, dtypes::bf16); }
Var as_int8(const Var& x, const Var& w, const DynamicLinearOptions& options) {
  QuantizeOpOptions how;
  how.sr = options.activation_sr;
  how.transposed =
      w.tracked() && Tape::current() != nullptr && options.gw == ProductMode::kInt8 &&
      detail::prefers_transposed(options.activation.dtype, w.value().rows(), x.value().cols(), x.value().rows(),
                                 /*a_k_major=*/true);
  return quantize(x, options.activation, how);
}

struct Forward {
  ProductMode mode;
  Var (*operand)(const Var& x, const Var& w, const DynamicLinearOptions& options);
};
constexpr Forward kForwards[] = {
    {ProductMode::kFp32, as_fp32}, {ProductMode::kBf16, as_bf16}, {ProductMode::kInt8, as_int8}};

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

Var integer_linear(const Var& x, const Var& w, const Var& bias) {
  return bias.defined() ? apply<IntegerLinear>({x, w, bias}) : apply<IntegerLinear>({x, w});
}

DynamicLinearOptions::DynamicLinearOptions() {
  activation.dtype = dtypes::int8;
  activation.scheme = "affine";
  activation.granularity = Granularity::token();
  activation.ste = SteRule::kIdentity;
}

Var quantized_linear_dynamic(const Var& x, const Var& w, const Var& bias, const DynamicLinearOptions& options) {
  require(x.defined() && w.defined(), kDynamicLinear, "x and w must be defined: got x ", x.value(), ", w ", w.value());
  require(x.dtype() == dtypes::fp32 && !x.value().quant() && x.shape().rank() == 2 && x.value().contiguous(),
          kDynamicLinear, "x: got ", x.value().describe(),
          ", expected an fp32 matrix [n, features]. For codes use `linear`.");
  require(w.dtype() != dtypes::fp64, kDynamicLinear, "w: got ", w.value(), ", expected codes, fp32 or bf16");
  require(w.shape().rank() == 2 && w.value().cols() == x.value().cols(), kDynamicLinear, "x has ", x.value().cols(),
          " features, w expects ", w.value().cols(), " (x ", x.value(), ", w ", w.value(), ")");
  require(options.forward == ProductMode::kInt8 || options.gw != ProductMode::kInt8 || !w.tracked(), kDynamicLinear,
          "gw int8 multiplies the codes of x, but forward is ", enum_name(options.forward),
          ", which has none. Set forward to int8, or gw to bf16 or fp32.");
  ProductModes modes;
  modes.gx = options.gx;
  modes.gw = options.gw;
  modes.sr = options.gradient_sr;
  modes.gx_per_group = options.gx_per_group;
  for (const Forward& f : kForwards)
    if (f.mode == options.forward) return linear(f.operand(x, w, options), w, bias, modes);
  fail_with(ErrorCode::kBug, kDynamicLinear, "internal error: unknown mode ", static_cast<int>(options.forward));
}

}  // namespace bitgrad
