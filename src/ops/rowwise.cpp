// Ops over the last axis of x (kernels/rowwise.h): layer norm (Ba, Kiros and Hinton 2016, arXiv 1607.06450, equation
// 3), RMS norm (Zhang and Sennrich 2019, arXiv 1910.07467, equation 4), softmax. docs/numerics.md section 10.
#include "kernels/rowwise.h"
#include "bitgrad/ops/ops.h"
#include "ops/common.h"
#include "ops/strided.h"

namespace bitgrad {
namespace {

kernels::FloatsIn read(const Tensor& t) {
  return t.defined() ? kernels::FloatsIn{t.data(), t.dtype()} : kernels::FloatsIn{};
}
kernels::FloatsOut written(const Tensor& t) {
  return t.defined() ? kernels::FloatsOut{t.data(), t.dtype()} : kernels::FloatsOut{};
}

// Dtype of statistics, parameters and gradients: fp64 for fp64, else fp32.
DType wide_of(const Tensor& x) { return x.dtype() == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32; }

void check_norm(std::string_view op, std::span<const Tensor> in, float eps) {
  const Tensor& x = in[0];
  require_activation(op, "x", x);
  require(x.shape().rank() > 0 && x.cols() > 0, op, "x must have an axis with elements, got ", x);
  const Shape want{x.cols()};
  for (size_t i = 1; i < in.size(); ++i)
    require(in[i].shape() == want && in[i].dtype() == wide_of(x) && !in[i].quant() && in[i].contiguous(), op,
            i == 1 ? "gamma" : "beta", " must be ", want, ' ', wide_of(x), ", got ", in[i]);
  require(eps >= 0, op, "eps must not be negative, got ", eps);
}

template <bool kCentered>
struct RowNorm {
  static constexpr std::string_view kName = kCentered ? "layer_norm" : "rms_norm";
  struct Saved {
    Tensor x, gamma, mean, inv;  // mean: only for layer norm
  };
  static Tensor forward(Saved& saved, std::span<const Tensor> in, float eps) {
    check_norm(kName, in, eps);
    const Tensor& x = in[0];
    Tensor y = Tensor::empty(x.shape(), x.dtype()), inv = Tensor::empty({x.rows()}, wide_of(x));
    const Tensor mean = kCentered ? Tensor::empty({x.rows()}, wide_of(x)) : Tensor();
    kernels::NormRowsArgs args;
    args.rows = x.rows();
    args.cols = x.cols();
    args.x = read(x);
    args.centered = kCentered;
    args.eps = eps;
    args.gamma = read(in[1]);
    if (in.size() > 2) args.beta = read(in[2]);
    args.y = written(y);
    args.mean = written(mean);
    args.inv = written(inv);
    kernels::norm_rows(args);
    saved = {keep(x), keep(in[1]), kCentered ? keep(mean) : Tensor(), keep(inv)};
    return y;
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    const DType dtype = wide_of(s.x);
    const auto made = [&](size_t i, const Shape& shape) {
      return i < g.size() && g[i].wanted() ? Tensor::empty(shape, dtype) : Tensor();
    };
    const Tensor gx = made(0, s.x.shape()), ggamma = made(1, s.gamma.shape()), gbeta = made(2, s.gamma.shape());
    kernels::NormRowsBackwardArgs args;
    args.rows = s.x.rows();
    args.cols = s.x.cols();
    args.x = read(s.x);
    args.gy = read(gy[0]);
    args.centered = kCentered;
    args.gamma = read(s.gamma);
    args.mean = read(s.mean);
    args.inv = read(s.inv);
    args.gx = written(gx);
    args.ggamma = written(ggamma);
    args.gbeta = written(gbeta);
    kernels::norm_rows_backward(args);
    const Tensor* const all[] = {&gx, &ggamma, &gbeta};
    for (size_t i = 0; i < g.size(); ++i)
      if (g[i].wanted()) g[i].set_rounded(*all[i]);
  }
};

// gx = y * (gy - sum gy * y).
struct Softmax {
  static constexpr std::string_view kName = "softmax";
  struct Saved {
    Tensor y;
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in) {
    const Tensor& x = in[0];
    require_activation(kName, "x", x);
    require(x.shape().rank() > 0, kName, "x must have an axis to sum over, got ", x);
    Tensor y = Tensor::empty(x.shape(), x.dtype());
    kernels::softmax_rows({x.rows(), x.cols(), {x.data(), x.dtype()}, {y.data(), y.dtype()}});
    s.y = keep(y);
    return y;
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    const Tensor& y = s.y;
    const Tensor gx = Tensor::empty(y.shape(), wide_of(y));
    kernels::softmax_rows_backward(
        {y.rows(), y.cols(), {y.data(), y.dtype()}, {gy[0].data(), gy[0].dtype()}, {gx.data(), gx.dtype()}});
    g[0].set_rounded(gx);
  }
};

}  // namespace

Var layer_norm(const Var& x, const Var& gamma, const Var& beta, float eps) {
  if (!beta.defined()) return apply<RowNorm<true>>({x, gamma}, eps);
  return apply<RowNorm<true>>({x, gamma, beta}, eps);
}

Var rms_norm(const Var& x, const Var& gamma, float eps) { return apply<RowNorm<false>>({x, gamma}, eps); }

Var softmax(const Var& x) { return apply<Softmax>({x}); }

}  // namespace bitgrad
