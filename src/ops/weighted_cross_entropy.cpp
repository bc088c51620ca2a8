// weighted_cross_entropy_sum: one class per row or probabilities, class weights, label smoothing. Forward saves the
// slope, [rows, classes]. The plain losses are in cross_entropy.cpp.
#include <cmath>

#include "bitgrad/ops/ops.h"
#include "ops/loss.h"
#include "ops/map/loss.h"

namespace bitgrad {
namespace {

constexpr std::string_view kName = "softmax_cross_entropy";

[[noreturn]] void fail_row(const Tensor& targets) {
  const int64_t classes = targets.cols();
  const float* const t = targets.as<float>();
  for (int64_t r = 0; r < targets.rows(); ++r) {
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) {
      const float p = t[r * classes + c];
      require(p >= 0, kName, "probability ", c, " of row ", r, " of the targets is ", p, ", expected at least 0");
      sum += static_cast<double>(p);
    }
    require(std::fabs(sum - 1) <= 1e-3, kName, "the probabilities of row ", r, " of the targets have the sum ", sum,
            ", expected 1");
  }
  fail(kName, "a row of the targets ", targets, " holds no probabilities");
}

// Checked before the kernel on the CPU, and on a device by its flags.
struct GivenTargets {
  GivenTargets(const Tensor& logits, const Tensor& given, int32_t ignore) : targets(given) {
    require_float(kName, "logits", logits);
    require(logits.shape().rank() > 0 && logits.cols() > 0, kName, "logits must be [.., classes], got ", logits);
    if (given.dtype() == dtypes::int32) {
      classes.emplace(kName, logits, given, ignore);
      return;
    }
    require(given.dtype() == dtypes::fp32 && given.shape() == logits.shape() && given.contiguous(), kName,
            "targets must be classes, int32, or probabilities, fp32 in the shape of the logits ", logits, ", got ",
            given);
    require_here(kName, "targets", given);
    flag.emplace();
  }
  const int32_t* labels() const { return classes ? targets.as<int32_t>() : nullptr; }
  const float* probabilities() const { return classes ? nullptr : targets.as<float>(); }
  uint32_t* flags() const { return classes ? classes->flags() : flag->word(); }
  void check() const {
    if (classes) return classes->check(kName);
    flag->check([t = targets] { fail_row(t.on_host()); });
  }
  Tensor targets;
  std::optional<ClassTargets> classes;
  std::optional<FlagWord> flag;
};

// The rows of fp64 logits, for gradient checks.
void rows_of_doubles(const Tensor& y, const GivenTargets& given, const CrossEntropyOptions& o, const Tensor& slope,
                     const Tensor& terms) {
  const int64_t classes = y.cols();
  const float* const weights = o.weights.defined() ? o.weights.as<float>() : nullptr;
  for (int64_t r = 0; r < y.rows(); ++r) {
    const int32_t label = given.classes ? given.labels()[r] : -1;
    double* const to = slope.as<double>() + r * classes;
    if (given.classes && label == o.ignore_index) {
      std::fill(to, to + classes, 0.0);
      terms.as<double>()[r] = 0;
      continue;
    }
    const float* const t = given.classes ? nullptr : given.probabilities() + r * classes;
    if (t != nullptr && !maps::is_distribution(t, classes)) fail_row(given.targets);
    terms.as<double>()[r] =
        maps::weighted_softmax_row(y.as<double>() + r * classes, classes, {label, t, weights, o.smoothing}, to);
  }
}

struct WeightedCrossEntropy : SlopeLoss {
  static constexpr std::string_view kName = bitgrad::kName;
  static Tensor forward(Saved& s, std::span<const Tensor> in, const Tensor& given, const CrossEntropyOptions& o) {
    const Tensor& y = in[0];
    require(o.smoothing >= 0 && o.smoothing < 1, kName, "smoothing is ", o.smoothing, ", expected 0 to below 1");
    const GivenTargets targets(y, given, o.ignore_index);
    if (o.weights.defined()) {
      require(o.weights.dtype() == dtypes::fp32 && o.weights.shape() == Shape{y.cols()}, kName,
              "weights must be fp32 [", y.cols(), "], one for each class, got ", o.weights);
      require_here(kName, "weights", o.weights);
    }
    const Tensor slope = Tensor::empty(y.shape(), y.dtype()), terms = Tensor::empty({y.rows()}, y.dtype());
    if (y.dtype() == dtypes::fp64)
      rows_of_doubles(y, targets, o, slope, terms);
    else
      run_map(maps::WeightedSoftmaxRow{y.as<float>(), targets.labels(), targets.probabilities(),
                                       o.weights.defined() ? o.weights.as<float>() : nullptr, y.cols(), o.smoothing,
                                       o.ignore_index, slope.as<float>(), terms.as<float>(), targets.flags()},
              y.rows(), rows_per_task(y.cols()));
    targets.check();
    s.slope = keep(slope);
    return loss_total(terms, 1);
  }
};

}  // namespace

Var weighted_cross_entropy_sum(const Var& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  return apply<WeightedCrossEntropy>({logits}, targets, options);
}

}  // namespace bitgrad
