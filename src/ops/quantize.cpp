// Activations become codes, and gradients the values of codes.
#include "bitgrad/ops/ops.h"
#include "kernels/elementwise.h"
#include "ops/common.h"
#include "ops/map/gradients.h"
#include "quant/straight_through.h"

namespace bitgrad {
namespace {

QuantizeOptions kernel_options(const QuantizeOpOptions& options) {
  QuantizeOptions how;
  how.sr = options.sr;
  how.first_element = options.first_element;
  how.flags = options.flag;
  how.transposed = options.transposed;
  return how;
}

Tensor keep_dense(const Tensor& x) { return keep(x.contiguous() ? x : x.clone(MemoryKind::kActivation)); }

// Quantizes activations: y = codes of x under a scheme whose scales are computed from x, or given. Backward: the
// scheme's straight-through rule, or its own backward. A single kernel pass produces codes and mask. Saved: the mask
// (rule clip), x (approx_sign, tanh, schemes with their own backward) or nothing.
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
    QuantizeOptions how = kernel_options(options);
    const bool own = find_quantizer(spec.scheme).own_backward(spec);
    Tensor mask;
    if (will_backward() && rule == SteRule::kClip && !own) how.mask = &mask;
    Tensor y = detail::quantize_values(spec, x, options.params, how);
    if (!will_backward()) return y;
    s.spec = spec;
    s.spec.ste = rule;
    s.own = own;
    s.mask = keep(mask);
    if (own || rule == SteRule::kApproxSign || rule == SteRule::kTanh) s.x = keep_dense(x);
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

// Matrix rows per sample: 1 for vectors, positions for sequences, pixels for images.
int64_t sample_rows(const Shape& shape) {
  int64_t rows = 1;
  for (int64_t axis = 1; axis + 1 < shape.rank(); ++axis) rows *= shape[axis];
  return rows;
}

// Quantizes activations by a scheme with learned parts: LSQ (Esser et al. 2020, arXiv 1902.08153, eqs. 1-3), LSQ+
// (Bhalgat et al. 2020, arXiv 2004.09576), PACT (Choi et al. 2018, arXiv 1805.06085, eqs. 1-3). Scales come from the
// learned parts; x is fp32, bf16 (widened for backward), or int32 with a scale (then the codes are those of
// requantize). Backward: gx by the scheme's rule; the gradient of a learned part is the sum of docs/numerics.md section
// 3 over the microbatch, divided once by learned_divisor(n), where n is the number of elements that share it, not
// counting the batch axis. Saved: x, because the sums need the values before rounding.
struct QuantizeLearned {
  static constexpr std::string_view kName = "quantize_learned";
  struct Saved {
    const Quantizer* quantizer = nullptr;
    QuantSpec spec;
    Tensor x;
    std::shared_ptr<const QuantParams> params;
    int64_t shared = 1;  // elements that share a learned value, not counting the batch axis
  };

  static Tensor forward(Saved& s, std::span<const Tensor> in, const QuantSpec& spec, const QuantizeOpOptions& options) {
    const Tensor& x = in[0];
    const Quantizer& quantizer = find_quantizer(spec.scheme);
    quantizer.check(spec, /*weight=*/false);
    const bool integers = x.dtype() == dtypes::int32;
    const bool values = (x.dtype() == dtypes::fp32 || x.dtype() == dtypes::bf16) && !x.quant();
    require(integers || values, kName, "x: got ", x, ", expected fp32 values, or int32 with a scale.");
    check_learned(quantizer, spec, in);
    require(!options.params, kName, "scales were passed together with the learned values of scheme ", spec.scheme,
            ". Use quantize for explicit scales.");
    const auto params = std::make_shared<const QuantParams>(quantizer.params_of(spec, in.subspan(1)));
    Tensor y;
    if (integers) {
      y = requantize(Var(x), spec.dtype, params).value();
    } else {
      y = detail::quantize_values(spec, x, params, kernel_options(options));
    }
    if (!will_backward()) return y;
    s = {&quantizer, spec, keep_dense(x), params,
         sample_rows(x.shape()) * (spec.granularity.kind == Granularity::kTensor ? x.cols() : 1)};
    return y;
  }

  static void check_learned(const Quantizer& quantizer, const QuantSpec& spec, std::span<const Tensor> in) {
    const std::vector<LearnedPart> parts = quantizer.learned(spec);
    require(!parts.empty(), kName, "scheme ", spec.scheme, " learns nothing: got ", in.size() - 1,
            " learned tensors. Use quantize.");
    require(parts.size() == in.size() - 1, kName, "scheme ", spec.scheme, " learns ", parts.size(), " parts: got ",
            in.size() - 1, " tensors.");
    const Granularity& g = spec.granularity;
    const bool per_feature = g.kind == Granularity::kChannel && g.axis != 0;
    require(per_feature || g.kind == Granularity::kTensor, kName,
            "learned values of activations are per tensor or per ", "channel(1): got ", g, '.');
    const int64_t blocks = per_feature ? in[0].cols() : 1;
    for (size_t i = 0; i < parts.size(); ++i)
      require(in[i + 1].dtype() == dtypes::fp32 && in[i + 1].shape() == Shape{blocks}, kName, "the learned ",
              parts[i].name, ": got ", in[i + 1], ", expected [", blocks, "] fp32.");
  }

  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    bool learns = false;
    for (size_t i = 1; i < g.size(); ++i) learns = learns || g[i].wanted();
    if (!learns && !g[0].wanted()) return;
    const Tensor gv = wide(gy[0]);
    const Tensor x = s.x.dtype() == dtypes::int32 ? values_of(kName, s.x, MemoryKind::kWorkspace) : widened(s.x);
    const Tensor gx = g[0].wanted() ? Tensor::empty(gv.shape(), dtypes::fp32) : Tensor();
    std::vector<Tensor> sums;
    if (learns)
      for (size_t i = 1; i < g.size(); ++i) sums.push_back(Tensor::zeros(g[i].shape(), dtypes::fp32));
    s.quantizer->leaf_backward(s.spec, *s.params, x, gv, gx, sums);
    if (g[0].wanted()) g[0].set_rounded(gx);
    const float divisor = s.quantizer->learned_divisor(s.spec, s.shared);
    for (size_t i = 0; i < sums.size(); ++i) {
      if (!g[i + 1].wanted()) continue;
      kernels::divide(sums[i].numel(), sums[i].as<float>(), divisor);
      g[i + 1].set_rounded(sums[i]);
    }
  }
};

// y = x. Backward: gx = the value of the codes of gy under a scheme, with scales computed from gy, stochastic
// (DoReFa-Net: Zhou et al. 2016, arXiv 1606.06160, eq. 12).
struct QuantizeGradient {
  static constexpr std::string_view kName = "quantize_gradient";
  struct Saved {
    QuantSpec spec;
    RandomStream draws;
  };

  static Tensor forward(Saved& s, std::span<const Tensor> in, const QuantSpec& spec, const RandomStream& draws) {
    require(in[0].dtype() != dtypes::fp64, kName, "x is ", in[0], ": gradients of fp64 have no quantized form.");
    find_quantizer(spec.scheme).check(spec, /*weight=*/false);
    s = {spec, draws};
    return in[0];
  }

  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    const Tensor from = wide(gy[0]);
    QuantizeOptions how;
    how.sr = &s.draws;
    how.kind = MemoryKind::kWorkspace;
    // NaN and Inf pass through: the optimizer step finds them in the parameter's gradient and names the parameter.
    const Tensor flag = Tensor::zeros({1}, dtypes::int32, MemoryKind::kWorkspace);
    how.flags = reinterpret_cast<uint32_t*>(flag.as<int32_t>());
    const Tensor values = dequantize_tensor(quantize_dynamic(s.spec, from, how));
    run_map(maps::KeepWhereFlagged{how.flags, from.as<float>(), values.as<float>()}, values.numel());
    g[0].set_rounded(values);
  }
};

}  // namespace

Var quantize(const Var& x, const QuantSpec& spec, const QuantizeOpOptions& options) {
  return apply<Quantize>({x}, spec, options);
}
Var quantize_learned(const Var& x, const QuantSpec& spec, const std::vector<Var>& learned,
                     const QuantizeOpOptions& options) {
  std::vector<Var> inputs{x};
  inputs.insert(inputs.end(), learned.begin(), learned.end());
  return apply<QuantizeLearned>(inputs, spec, options);
}
Var quantize_gradient(const Var& x, const QuantSpec& spec, const RandomStream& sr) {
  return apply<QuantizeGradient>({x}, spec, sr);
}

}  // namespace bitgrad
