// loss = sum_n (1/C) sum_c max(0, 1 - t y)^2, t = +1 for the label's class, else -1;  gy = (-2/C) t max(0, 1 - t y).
#include "bitgrad/ops/ops.h"
#include "ops/loss.h"
#include "ops/map/loss.h"

namespace bitgrad {
namespace {

struct SquaredHinge {
  static constexpr std::string_view kName = "squared_hinge";
  struct Saved {
    Tensor margin;  // t * max(0, 1 - t y)
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in, const Tensor& given) {
    const Tensor& y = in[0];
    const CheckedLabels labels(kName, y, given);
    const int64_t classes = y.cols();
    const Tensor margin = Tensor::empty(y.shape(), y.dtype()), squares = Tensor::empty(y.shape(), y.dtype());
    if (y.dtype() == dtypes::fp64) {
      for (int64_t i = 0; i < y.numel(); i += classes)
        maps::hinge_row(y.as<double>() + i, classes, labels.data()[i / classes], margin.as<double>() + i,
                        squares.as<double>() + i);
    } else {
      run_map(maps::SquaredHingeRow{y.as<float>(), labels.data(), classes, margin.as<float>(), squares.as<float>(),
                                    labels.flags()},
              y.rows(), rows_per_task(classes));
    }
    labels.check(kName, y);
    s.margin = keep(margin);
    return loss_total(squares, static_cast<double>(classes));
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    const bool f64 = s.margin.dtype() == dtypes::fp64;
    const auto classes = static_cast<double>(s.margin.cols());
    g[0].set_rounded(
        loss_gradient(gy[0], f64 ? -2.0 / classes : double{-2.0f / static_cast<float>(classes)}, s.margin));
  }
};

}  // namespace

Var squared_hinge(const Var& logits, const Tensor& labels) { return apply<SquaredHinge>({logits}, labels); }
Var squared_hinge(const Var& logits, std::span<const int32_t> labels) {
  return squared_hinge(logits, labels_of(SquaredHinge::kName, logits.value(), labels));
}

}  // namespace bitgrad
