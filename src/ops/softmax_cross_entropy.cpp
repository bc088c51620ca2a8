// softmax_cross_entropy_sum: scores [n, classes] with one class per sample, none ignored. loss = sum_n log(sum_c exp(y
// - max)) - (y_label - max);  gy = softmax(y) - onehot(label), which forward saves. For classes per position, an ignore
// index and the mean see cross_entropy.cpp, which saves two values per row. The two have different orders of summation
// (docs/numerics.md sections 6 and 10), so neither is a special case of the other.
#include "bitgrad/ops/ops.h"
#include "ops/loss.h"
#include "ops/map/loss.h"

namespace bitgrad {
namespace {

struct SoftmaxCrossEntropy {
  static constexpr std::string_view kName = "softmax_cross_entropy";
  struct Saved {
    Tensor difference;  // softmax - onehot
  };
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
    s.difference = keep(difference);
    return loss_total(terms, 1);
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (g[0].wanted()) g[0].set_rounded(loss_gradient(gy[0], 1, s.difference));
  }
};

}  // namespace

Var softmax_cross_entropy_sum(const Var& logits, const Tensor& labels) {
  return apply<SoftmaxCrossEntropy>({logits}, labels);
}
Var softmax_cross_entropy(const Var& logits, std::span<const int32_t> labels) {
  return softmax_cross_entropy_sum(logits, labels_of(SoftmaxCrossEntropy::kName, logits.value(), labels));
}

}  // namespace bitgrad
