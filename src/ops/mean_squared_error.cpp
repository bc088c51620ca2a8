// loss = mean over all elements of (y - t)^2;  gy = (2/n) (y - t).
#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "ops/loss.h"
#include "ops/strided.h"
#include "ops/targets.h"

namespace bitgrad {
namespace {

struct MeanSquaredError {
  static constexpr std::string_view kName = "mean_squared_error";
  struct Saved {
    Tensor difference;  // fp32, or fp64 for fp64 inputs
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in, const Tensor& target) {
    const Tensor& y = in[0];
    require_targets_like(kName, y, target);
    const bool f64 = y.dtype() == dtypes::fp64;
    const Tensor difference =
        broadcast(kernels::PointwiseOp::sub, y, target, y.shape(), f64 ? dtypes::fp64 : dtypes::fp32);
    s.difference = keep(difference);
    const int64_t n = y.numel();
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
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    const auto n = static_cast<double>(s.difference.numel());
    const bool f64 = s.difference.dtype() == dtypes::fp64;
    g[0].set_rounded(loss_gradient(gy[0], f64 ? 2.0 / n : double{2.0f / static_cast<float>(n)}, s.difference));
  }
};

}  // namespace

Var mean_squared_error(const Var& outputs, const Tensor& target) { return apply<MeanSquaredError>({outputs}, target); }

}  // namespace bitgrad
