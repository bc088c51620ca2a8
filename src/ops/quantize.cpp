// Quantizes activations: y = codes of x under a scheme whose scales are computed from x, or given. Backward: the
// scheme's straight-through rule, or its own backward. A single kernel pass produces codes and mask. Saved: the mask
// (rule clip), x (approx_sign, tanh, schemes with their own backward) or nothing.
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
    std::shared_ptr<const QuantParams> params;  // for binary with alpha, and schemes with their own backward
    bool own = false;
  };

  static Tensor forward(Saved& s, std::span<const Tensor> in, const QuantSpec& spec, const QuantizeOpOptions& options) {
    require(!in[0].quant() && in[0].dtype().is_float(), kName, "x is quantized already, or integer: got ", in[0],
            ", expected fp32 values. Dequantize it first.");
    require(in[0].dtype() == dtypes::fp32 || in[0].dtype() == dtypes::bf16, kName, "dtype of x: got ", in[0],
            ", expected fp32 or bf16. Straight-through rules have no ", in[0].dtype(), " form.");
    const Tensor& x = in[0];
    const SteRule rule = ste_rule(spec);
    QuantizeOptions how;
    how.sr = options.sr;
    how.first_element = options.first_element;
    how.flags = options.flag;
    how.transposed = options.transposed;
    const bool own = find_quantizer(spec.scheme).own_backward(spec);
    Tensor mask;
    if (will_backward() && rule == SteRule::kClip && !own) how.mask = &mask;
    Tensor y = detail::quantize_values(spec, x, options.params, how);
    if (!will_backward()) return y;
    s.spec = spec;
    s.spec.ste = rule;
    s.own = own;
    s.mask = keep(mask);
    if (own || rule == SteRule::kApproxSign || rule == SteRule::kTanh)
      s.x = keep(x.contiguous() ? x : x.clone(MemoryKind::kActivation));
    if (own || spec.alpha) s.params = y.quant();
    return y;
  }

  // Rule tanh, written directly into the slot's gradient without a temporary tensor.
  static void tanh_into(const Saved& s, const Tensor& gv, GradSlot& slot) {
    const Tensor x = widened(s.x);
    const GradTarget target = slot.target();
    float* const gx = target.out.as<float>();
    detail::tanh_gradient(s.spec.ste_t, x.as<float>(), gv.as<float>(), target.accumulate ? gx : nullptr, gv.numel(),
                          gx);
    slot.commit();
  }

  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    const bool clips = !s.own && s.spec.ste == SteRule::kClip && s.mask.defined(), scales = s.params && s.params->scale;
    if (clips && !scales) return masked_into(gy[0], s.mask, g[0]);
    Tensor gv = wide(gy[0]);
    if (s.own) {
      const Tensor gx = Tensor::empty(gv.shape(), dtypes::fp32);
      find_quantizer(s.spec.scheme).leaf_backward(s.spec, *s.params, widened(s.x), gv, gx);
      return g[0].set_rounded(gx);
    }
    if (s.spec.ste == SteRule::kNone) return;
    if (scales) {
      const Tensor scaled = Tensor::empty(gv.shape(), dtypes::fp32);
      detail::times_scale(*s.params, gv, scaled);
      gv = scaled;
    }
    if (clips) return masked_into(gv, s.mask, g[0]);
    if (s.spec.ste == SteRule::kTanh && g[0].dtype() == dtypes::fp32) return tanh_into(s, gv, g[0]);
    g[0].set_rounded(straight_through(s.spec, gv, s.mask, s.x.defined() ? widened(s.x) : s.x));
  }
};

}  // namespace

Var quantize(const Var& x, const QuantSpec& spec, const QuantizeOpOptions& options) {
  return apply<Quantize>({x}, spec, options);
}

}  // namespace bitgrad
