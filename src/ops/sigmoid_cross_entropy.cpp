// loss = mean over all elements of max(x, 0) - x t + log(1 + e^-|x|): the cross-entropy of sigmoid(x) with t in a form
// that neither overflows nor cancels (TensorFlow, sigmoid_cross_entropy_with_logits);  gx = (sigmoid(x) - t) / n.
#include "ops/loss.h"
#include "ops/map/elements.h"
#include "ops/targets.h"

namespace bitgrad {
namespace {

// Throws Error for targets outside [0, 1]; names the first.
[[noreturn]] void fail_target(std::string_view op, const Tensor& target) {
  const std::vector<double> t = target.elements();
  for (size_t i = 0; i < t.size(); ++i)
    require(t[i] >= 0 && t[i] <= 1, op, "target ", i, " of ", target, " is ", t[i], ", expected 0 .. 1");
  fail(op, "a target of ", target, " was not in 0 .. 1");
}

struct SigmoidCrossEntropy {
  static constexpr std::string_view kName = "sigmoid_cross_entropy";
  struct Saved {
    Tensor slope;  // sigmoid(x) - t
  };
  // pos_weight: undefined, or one factor for each output.
  static Tensor forward(Saved& s, std::span<const Tensor> in, const Tensor& target, const Tensor& pos_weight) {
    const Tensor& x = in[0];
    require_targets_like(kName, x, target);
    check_factors(x, pos_weight);
    const DType dtype = x.dtype() == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32;
    const Tensor terms = Tensor::empty(x.shape(), dtype), slope = Tensor::empty(x.shape(), dtype);
    if (dtype == dtypes::fp64) {
      for (int64_t i = 0; i < x.numel(); ++i) {
        const double logit = x.as<double>()[i], t = target.as<double>()[i];
        if (!(t >= 0 && t <= 1)) fail_target(kName, target);
        if (pos_weight.defined()) {
          const double p = pos_weight.as<float>()[i % x.cols()];
          terms.as<double>()[i] = maps::weighted_sigmoid_double(logit, t, p);
          slope.as<double>()[i] = maps::weighted_sigmoid_slope_double(logit, t, p);
        } else {
          terms.as<double>()[i] = maps::sigmoid_cross_entropy_double(logit, t);
          slope.as<double>()[i] = maps::sigmoid_cross_entropy_slope_double(logit, t);
        }
      }
    } else {
      const FlagWord outside;
      const bool bf16_x = x.dtype() == dtypes::bf16, bf16_t = target.dtype() == dtypes::bf16;
      float *const term = terms.as<float>(), *const slopes = slope.as<float>();
      if (pos_weight.defined())
        run_map(maps::WeightedSigmoidCrossEntropy{x.data(), target.data(), bf16_x, bf16_t, pos_weight.as<float>(),
                                                  x.cols(), term, slopes, outside.word()},
                x.numel(), 4096);
      else
        run_map(maps::SigmoidCrossEntropy{x.data(), target.data(), bf16_x, bf16_t, term, slopes, outside.word()},
                x.numel(), 4096);
      outside.check([target] { fail_target(kName, target); });
    }
    s.slope = keep(slope);
    return loss_total(terms, static_cast<double>(x.numel()));
  }
  static void check_factors(const Tensor& x, const Tensor& pos_weight) {
    if (!pos_weight.defined()) return;
    require(pos_weight.dtype() == dtypes::fp32 && pos_weight.shape() == Shape{x.cols()}, kName,
            "pos_weight must be fp32 [", x.cols(), "], one for each output, got ", pos_weight);
    require_here(kName, "pos_weight", pos_weight);
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    const auto n = static_cast<double>(s.slope.numel());
    const bool f64 = s.slope.dtype() == dtypes::fp64;
    g[0].set_rounded(loss_gradient(gy[0], f64 ? 1.0 / n : double{1.0f / static_cast<float>(n)}, s.slope));
  }
};

}  // namespace

Var sigmoid_cross_entropy(const Var& logits, const Tensor& targets) {
  return apply<SigmoidCrossEntropy>({logits}, targets, Tensor());
}
Var weighted_sigmoid_cross_entropy(const Var& logits, const Tensor& targets, const Tensor& pos_weight) {
  return apply<SigmoidCrossEntropy>({logits}, targets, pos_weight);
}

}  // namespace bitgrad
