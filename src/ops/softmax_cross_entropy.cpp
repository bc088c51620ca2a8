// loss = sum_n log(sum_c exp(y - max)) - (y_label - max);  gy = softmax(y) - onehot(label).
#include <cmath>

#include "bitgrad/base/math.h"
#include "bitgrad/ops/ops.h"
#include "ops/loss.h"

namespace bitgrad {
namespace {

// fp64 rows are references for gradient checks: there the C library serves.
inline float exp_of(float x) { return math::exp(x); }
inline double exp_of(double x) { return std::exp(x); }
inline float log_of(float x) { return math::log(x); }
inline double log_of(double x) { return std::log(x); }

struct SoftmaxCrossEntropy {
  static constexpr std::string_view kName = "softmax_cross_entropy";
  struct Saved {
    Tensor difference;  // softmax - onehot
  };
  template <typename T>
  static Tensor run(Saved& s, const Tensor& y, std::span<const int32_t> labels) {
    const int64_t classes = y.cols();
    Tensor difference = Tensor::empty(y.shape(), y.dtype());
    Tensor terms = Tensor::empty({y.rows()}, y.dtype());
    for (int64_t r = 0; r < y.rows(); ++r) {
      const T* row = y.as<T>() + r * classes;
      T* d = difference.as<T>() + r * classes;
      T top = row[0];
      for (int64_t c = 1; c < classes; ++c) top = row[c] > top ? row[c] : top;
      T total = 0;
      for (int64_t c = 0; c < classes; ++c) total = total + (d[c] = exp_of(row[c] - top));
      const int32_t label = labels[static_cast<size_t>(r)];
      terms.as<T>()[r] = log_of(total) - (row[label] - top);
      for (int64_t c = 0; c < classes; ++c) d[c] = d[c] / total - (c == label ? T(1) : T(0));
    }
    s.difference = keep(difference);
    return loss_total<T>(terms, T(1));
  }
  static Tensor forward(Saved& s, std::span<const Tensor> in, std::span<const int32_t> labels) {
    check_logits(kName, in[0], labels);
    return in[0].dtype() == dtypes::fp64 ? run<double>(s, in[0], labels) : run<float>(s, in[0], labels);
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    const double seed = gy[0].item();
    Tensor gx = Tensor::empty(s.difference.shape(), s.difference.dtype());
    for (int64_t i = 0; i < gx.numel(); ++i) {
      if (gx.dtype() == dtypes::fp64)
        gx.as<double>()[i] = seed * s.difference.as<double>()[i];
      else
        gx.as<float>()[i] = static_cast<float>(seed) * s.difference.as<float>()[i];
    }
    g[0].set_rounded(gx);
  }
};

}  // namespace

Var softmax_cross_entropy(const Var& logits, std::span<const int32_t> labels) {
  return apply<SoftmaxCrossEntropy>({logits}, labels);
}

}  // namespace bitgrad
