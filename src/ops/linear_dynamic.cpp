// Linear layer whose input range is computed at run time: x is quantized (int8), rounded (bf16) or used as is (fp32),
// followed by linear. docs/numerics.md section 5. Gradients pass straight through the rounding of x (rule identity);
// the backward products have modes of their own.
#include "bitgrad/ops/ops.h"
#include "kernels/elementwise.h"
#include "ops/common.h"
#include "ops/product/transposed.h"

namespace bitgrad {
namespace {

constexpr std::string_view kDynamicLinear = "quantized_linear_dynamic";

// y = x in bf16, rounded to nearest even. gx = gy.
struct RoundBf16 {
  static constexpr std::string_view kName = kDynamicLinear;  // errors name the op that does the rounding
  struct Saved {};
  static Tensor forward(Saved&, std::span<const Tensor> in) {
    Tensor y = Tensor::empty(in[0].shape(), dtypes::bf16);
    kernels::to_bf16(y.numel(), in[0].as<float>(), y.as<uint16_t>());
    return y;
  }
  static void backward(Saved&, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (g[0].wanted()) g[0].set_rounded(gy[0].dtype() == g[0].dtype() ? gy[0] : wide(gy[0]));
  }
};

Var as_fp32(const Var& x, const Var&, const DynamicLinearOptions&) { return x; }
Var as_bf16(const Var& x, const Var&, const DynamicLinearOptions&) { return apply<RoundBf16>({x}); }
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
