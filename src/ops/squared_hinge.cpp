// loss = sum_n (1/C) sum_c max(0, 1 - t y)^2, t = +1 for the label's class, else -1;  gy = (-2/C) t max(0, 1 - t y).
#include "bitgrad/kernels/reduce.h"
#include "bitgrad/ops/ops.h"
#include "ops/loss.h"

namespace bitgrad {
namespace {

struct SquaredHinge {
  static constexpr std::string_view kName = "squared_hinge";
  struct Saved {
    Tensor margin;  // t * max(0, 1 - t y)
  };
  template <typename T>
  static Tensor run(Saved& s, const Tensor& y, std::span<const int32_t> labels) {
    const int64_t classes = y.cols();
    Tensor margin = Tensor::empty(y.shape(), y.dtype());
    Tensor terms = Tensor::empty(y.shape(), y.dtype());
    const T* const logits = y.as<T>();
    T *const kept = margin.as<T>(), *const squares = terms.as<T>();
    for (int64_t r = 0; r < y.rows(); ++r)
      for (int64_t c = 0; c < classes; ++c) {
        const int64_t i = r * classes + c;
        const T t = labels[static_cast<size_t>(r)] == c ? T(1) : T(-1);
        const T m = T(1) - t * logits[i];
        const T h = m <= T(0) ? T(0) : m;  // a NaN stays one
        kept[i] = t * h;
        squares[i] = h * h;
      }
    s.margin = keep(margin);
    return loss_total<T>(terms, static_cast<T>(classes));
  }
  static Tensor forward(Saved& s, std::span<const Tensor> in, std::span<const int32_t> labels) {
    check_logits(kName, in[0], labels);
    return in[0].dtype() == dtypes::fp64 ? run<double>(s, in[0], labels) : run<float>(s, in[0], labels);
  }
  template <typename T>
  static Tensor gradient(const Saved& s, T gy) {
    Tensor g = Tensor::empty(s.margin.shape(), s.margin.dtype());
    const T factor = gy * (T(-2) / static_cast<T>(s.margin.cols()));
    const T* const kept = s.margin.as<T>();
    T* const out = g.as<T>();
    for (int64_t i = 0, n = g.numel(); i < n; ++i) out[i] = factor * kept[i];
    return g;
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    const double seed = gy[0].item();
    g[0].set_rounded(s.margin.dtype() == dtypes::fp64 ? gradient<double>(s, seed)
                                                      : gradient<float>(s, static_cast<float>(seed)));
  }
};

}  // namespace

Var squared_hinge(const Var& logits, std::span<const int32_t> labels) { return apply<SquaredHinge>({logits}, labels); }

}  // namespace bitgrad
