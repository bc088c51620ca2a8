// Quantizes activations by a scheme with learned parts: LSQ (Esser et al. 2020, arXiv 1902.08153, eqs. 1-3), LSQ+
// (Bhalgat et al. 2020, arXiv 2004.09576), PACT (Choi et al. 2018, arXiv 1805.06085, eqs. 1-3). Scales come from the
// learned parts; x is fp32, bf16 (widened for backward), or int32 with a scale (then the codes are those of
// requantize). Backward: gx by the scheme's rule; the gradient of a learned part is the sum of docs/numerics.md section
// 3 over the microbatch, divided once by learned_divisor(n), where n is the number of elements that share it, not
// counting the batch axis. Saved: x, because the sums need the values before rounding.
#include "bitgrad/ops/ops.h"
#include "kernels/elementwise.h"
#include "ops/common.h"

namespace bitgrad {
namespace {

// Matrix rows per sample: 1 for vectors, positions for sequences, pixels for images.
int64_t sample_rows(const Shape& shape) {
  int64_t rows = 1;
  for (int64_t axis = 1; axis + 1 < shape.rank(); ++axis) rows *= shape[axis];
  return rows;
}

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
      QuantizeOptions how;
      how.sr = options.sr;
      how.first_element = options.first_element;
      how.flags = options.flag;
      how.transposed = options.transposed;
      y = detail::quantize_values(spec, x, params, how);
    }
    if (!will_backward()) return y;
    s = {&quantizer, spec, keep(x.contiguous() ? x : x.clone(MemoryKind::kActivation)), params,
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

}  // namespace

Var quantize_learned(const Var& x, const QuantSpec& spec, const std::vector<Var>& learned,
                     const QuantizeOpOptions& options) {
  std::vector<Var> inputs{x};
  inputs.insert(inputs.end(), learned.begin(), learned.end());
  return apply<QuantizeLearned>(inputs, spec, options);
}

}  // namespace bitgrad
