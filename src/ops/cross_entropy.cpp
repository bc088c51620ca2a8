// Losses over logits [.., classes] with one class per row; with weights and probabilities: weighted_cross_entropy.cpp.
//
// cross_entropy: loss = mean or sum of log(sum_c exp(y - max)) - (y_target
// - max);  gy = (softmax(y) - onehot) / count. With an ignore index (CrossEntropy), backward recomputes the softmax
// from its maximum and sum, two values per row; without (SoftmaxCrossEntropy), forward saves gy. The two have different
// orders of summation (docs/numerics.md sections 6 and 10), so neither is a special case of the other.
#include "kernels/rowwise.h"
#include "ops/loss.h"
#include "ops/map/loss.h"
#include "ops/map/totals.h"

namespace bitgrad {
namespace {

struct SoftmaxCrossEntropy : SlopeLoss {
  static constexpr std::string_view kName = "softmax_cross_entropy";
  static Tensor forward(Saved& s, std::span<const Tensor> in, const Tensor& given) {
    const Tensor& y = in[0];
    const CheckedLabels labels(kName, y, given);
    const int64_t classes = y.cols();
    const Tensor difference = Tensor::empty(y.shape(), y.dtype()), terms = Tensor::empty({y.rows()}, y.dtype());
    if (y.dtype() == dtypes::fp64) {
      for (int64_t r = 0; r < y.rows(); ++r)
        terms.as<double>()[r] = maps::softmax_row(y.as<double>() + r * classes, classes, labels.data()[r],
                                                  difference.as<double>() + r * classes);
    } else {
      run_map(maps::SoftmaxRow{y.as<float>(), labels.data(), classes, difference.as<float>(), terms.as<float>(),
                               labels.flags()},
              y.rows(), rows_per_task(classes));
    }
    labels.check(kName, y);
    s.slope = keep(difference);  // softmax - onehot
    return loss_total(terms, 1);
  }
};

struct CrossEntropy {
  static constexpr std::string_view kName = "cross_entropy";
  struct Saved {
    Tensor x, targets, top, total, count;
    int32_t ignore = 0;
    bool mean = true;
  };

  static Tensor forward(Saved& s, std::span<const Tensor> in, const Tensor& given, int32_t ignore, bool mean) {
    const Tensor& x = in[0];
    const ClassTargets targets(kName, x, given, ignore);
    const DType dtype = x.dtype() == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32;
    const auto numbers = [&] { return Tensor::empty({x.rows()}, dtype); };
    const Tensor loss = numbers(), top = numbers(), total = numbers();
    kernels::cross_entropy_rows({x.rows(),
                                 x.cols(),
                                 {x.data(), x.dtype()},
                                 given.as<int32_t>(),
                                 ignore,
                                 {loss.data(), dtype},
                                 {top.data(), dtype},
                                 {total.data(), dtype},
                                 targets.flags()});
    targets.check(kName);
    const Tensor count = mean ? count_targets(given, ignore) : Tensor();
    s = {keep(x), keep(given), keep(top), keep(total), mean ? keep(count) : count, ignore, mean};
    return mean ? mean_of(loss, count, given, ignore) : loss_total(loss, 1);
  }

  static Tensor mean_of(const Tensor& loss, const Tensor& count, const Tensor& targets, int32_t ignore) {
    const auto fail_empty = [shape = targets.shape(), ignore] {
      fail(kName, "no target of ", shape, " is valid (all are ", ignore, "): there is nothing to average over");
    };
    if (loss.dtype() == dtypes::fp64) {
      double total = 0;
      for (int64_t i = 0; i < loss.numel(); ++i) total += loss.as<double>()[i];
      if (*count.as<int64_t>() == 0) fail_empty();
      return Tensor::scalar(total / static_cast<double>(*count.as<int64_t>()), dtypes::fp64);
    }
    Tensor out = Tensor::empty(Shape{}, dtypes::fp32), total = total_of(loss);
    const FlagWord empty;
    run_map(maps::DivideByCount{total.as<float>(), count.as<int64_t>(), out.as<float>(), empty.word()}, 1);
    empty.check(fail_empty);
    return out;
  }

  static void backward(Saved& s, std::span<const Tensor> gy_edge, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    const Tensor gy = wide(gy_edge[0]), factor = s.mean ? Tensor::empty(Shape{}, gy.dtype()) : gy;
    if (!s.mean) {
      // a sum: gy is the factor
    } else if (gy.dtype() == dtypes::fp64)
      *factor.as<double>() = gy.item() / static_cast<double>(*s.count.as<int64_t>());
    else
      run_map(maps::DivideByCount{gy.as<float>(), s.count.as<int64_t>(), factor.as<float>(), nullptr}, 1);
    const Tensor& x = s.x;
    const Tensor gx = Tensor::empty(x.shape(), gy.dtype());
    kernels::cross_entropy_rows_backward({x.rows(),
                                          x.cols(),
                                          {x.data(), x.dtype()},
                                          s.targets.as<int32_t>(),
                                          s.ignore,
                                          {s.top.data(), s.top.dtype()},
                                          {s.total.data(), s.total.dtype()},
                                          {factor.data(), factor.dtype()},
                                          {gx.data(), gx.dtype()}});
    g[0].set_rounded(gx);
  }
};

// loss = sum_n (1/C) sum_c max(0, 1 - t y)^2, t = +1 for the label's class, else -1;  gy = (-2/C) t max(0, 1 - t y).
struct SquaredHinge : SlopeLoss {
  static constexpr std::string_view kName = "squared_hinge";
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
    s = {keep(margin), -2, static_cast<double>(classes)};
    return loss_total(squares, s.divisor);
  }
};

}  // namespace

Var cross_entropy(const Var& logits, const Tensor& targets, Reduction reduction, std::optional<int32_t> ignore_index) {
  const bool mean = reduction == Reduction::kMean;
  if (ignore_index) return apply<CrossEntropy>({logits}, targets, *ignore_index, mean);
  require(!mean, CrossEntropy::kName, "the mean needs an ignore_index");
  return apply<SoftmaxCrossEntropy>({logits}, targets);
}

Var squared_hinge(const Var& logits, const Tensor& labels) { return apply<SquaredHinge>({logits}, labels); }
Var squared_hinge(const Var& logits, std::span<const int32_t> labels) {
  return squared_hinge(logits, labels_of(SquaredHinge::kName, logits.value(), labels));
}

}  // namespace bitgrad
