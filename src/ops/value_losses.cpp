// Losses over targets that are values. docs/numerics.md section 10.
#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "ops/loss.h"
#include "ops/map/loss.h"
#include "ops/strided.h"

namespace bitgrad {
namespace {

// loss = mean over all elements of (y - t)^2;  gy = (2/n) (y - t).
struct MeanSquaredError : SlopeLoss {
  static constexpr std::string_view kName = "mean_squared_error";
  static Tensor forward(Saved& s, std::span<const Tensor> in, const Tensor& target) {
    const Tensor& y = in[0];
    require_targets_like(kName, y, target);
    const bool f64 = y.dtype() == dtypes::fp64;
    const Tensor difference =
        broadcast(kernels::PointwiseOp::sub, y, target, y.shape(), f64 ? dtypes::fp64 : dtypes::fp32);
    const int64_t n = y.numel();
    s = {keep(difference), 2, static_cast<double>(n)};
    if (f64) {
      double total = 0;
      for (int64_t i = 0; i < n; ++i) total += difference.as<double>()[i] * difference.as<double>()[i];
      return Tensor::scalar(total / static_cast<double>(n), dtypes::fp64);
    }
    Tensor loss = Tensor::empty(Shape{}, dtypes::fp32);
    kernels::ReduceArgs args;
    args.rule = kernels::ReduceRule::kSumSquares;
    args.rows = 1;
    args.cols = args.ldx = n;
    args.x = difference.as<float>();
    args.out = loss.as<float>();
    kernels::reduce(args);
    kernels::divide(1, loss.as<float>(), static_cast<float>(n));
    return loss;
  }
};

// Throws Error for targets outside [0, 1]; names the first.
[[noreturn]] void fail_target(std::string_view op, const Tensor& target) {
  const std::vector<double> t = target.elements();
  for (size_t i = 0; i < t.size(); ++i)
    require(t[i] >= 0 && t[i] <= 1, op, "target ", i, " of ", target, " is ", t[i], ", expected 0 .. 1");
  fail(op, "a target of ", target, " was not in 0 .. 1");
}

// loss = mean over all elements of max(x, 0) - x t + log(1 + e^-|x|): the cross-entropy of sigmoid(x) with t in a form
// that neither overflows nor cancels (TensorFlow, sigmoid_cross_entropy_with_logits);  gx = (sigmoid(x) - t) / n.
struct SigmoidCrossEntropy : SlopeLoss {
  static constexpr std::string_view kName = "sigmoid_cross_entropy";
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
    s = {keep(slope), 1, static_cast<double>(x.numel())};
    return loss_total(terms, s.divisor);
  }
  static void check_factors(const Tensor& x, const Tensor& pos_weight) {
    if (!pos_weight.defined()) return;
    require(pos_weight.dtype() == dtypes::fp32 && pos_weight.shape() == Shape{x.cols()}, kName,
            "pos_weight must be fp32 [", x.cols(), "], one for each output, got ", pos_weight);
    require_here(kName, "pos_weight", pos_weight);
  }
};

}  // namespace

Var mean_squared_error(const Var& outputs, const Tensor& target) { return apply<MeanSquaredError>({outputs}, target); }
Var sigmoid_cross_entropy(const Var& logits, const Tensor& targets) {
  return apply<SigmoidCrossEntropy>({logits}, targets, Tensor());
}
Var weighted_sigmoid_cross_entropy(const Var& logits, const Tensor& targets, const Tensor& pos_weight) {
  return apply<SigmoidCrossEntropy>({logits}, targets, pos_weight);
}

}  // namespace bitgrad
