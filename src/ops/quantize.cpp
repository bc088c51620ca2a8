// Codes of activations: y = codes of x by a scheme whose scales are found from x. Backward: the scheme's
// straight-through rule. One pass of the kernel makes codes and mask; kept are the mask (rule clip), x (approx_sign) or
// nothing.
#include "bitgrad/ops/ops.h"
#include "ops/common.h"
#include "quant/straight_through.h"

namespace bitgrad {
namespace {

struct Quantize {
  static constexpr std::string_view kName = "quantize";
  struct Saved {
    QuantSpec spec;
    Tensor mask, x;
    std::shared_ptr<const QuantParams> alpha;  // binary with alpha only
  };

  static Tensor forward(Saved& s, std::span<const Tensor> in, const QuantSpec& spec, const QuantizeOpOptions& options) {
    const Tensor& x = in[0];
    require(!x.quant() && x.dtype().is_float(), kName, "x is quantized already, or integer: got ", x,
            ", expected fp32 numbers. Dequantize it first.");
    require(x.dtype() == dtypes::fp32, kName, "dtype of x: got ", x, ", expected fp32. Straight-through rules have no ",
            x.dtype(), " form.");
    const SteRule rule = ste_rule(spec);
    QuantizeOptions how;
    how.sr = options.sr;
    how.first_element = options.first_element;
    how.flags = options.flag;
    Tensor mask;
    if (will_backward() && rule == SteRule::kClip) how.mask = &mask;
    Tensor y = quantize_dynamic(spec, x, how);
    if (!will_backward()) return y;
    s.spec = spec;
    s.spec.ste = rule;
    s.mask = keep(mask);
    if (rule == SteRule::kApproxSign) s.x = keep(x.contiguous() ? x : x.clone(MemoryKind::kActivation));
    if (spec.alpha) s.alpha = y.quant();
    return y;
  }

  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (!g[0].wanted() || s.spec.ste == SteRule::kNone) return;
    Tensor gv = wide(gy[0]);
    if (s.alpha && s.alpha->scale) {
      const Tensor scaled = Tensor::empty(gv.shape(), dtypes::fp32);
      detail::times_scale(*s.alpha, gv, scaled);
      gv = scaled;
    }
    g[0].set_rounded(straight_through(s.spec, gv, s.mask, s.x));
  }
};

}  // namespace

Var quantize(const Var& x, const QuantSpec& spec, const QuantizeOpOptions& options) {
  return apply<Quantize>({x}, spec, options);
}

}  // namespace bitgrad
