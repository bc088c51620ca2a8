#include "ops/norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "ops/common.h"
#include "ops/map/norm.h"

namespace bitgrad {

using detail::norm_input_gradient, detail::norm_means, detail::norm_statistics, detail::norm_sums_args,
    detail::normalize_args, detail::normalize_backward_args, detail::NormSums;

namespace {

// One output per statistic: the sum of x, or of (x - center)^2, over each column or over all elements.
Tensor statistic(bool per_column, const Tensor& x, const Tensor& center = {}) {
  const int64_t groups = per_column ? x.cols() : 1;
  if (x.dtype() == dtypes::fp64) {
    Tensor out = Tensor::zeros({groups}, x.dtype());
    const double* p = x.as<double>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      const int64_t j = per_column ? i % x.cols() : 0;
      const double d = center.defined() ? p[i] - center.as<double>()[j] : 0.0;
      out.as<double>()[j] += center.defined() ? d * d : p[i];
    }
    return out;
  }
  Tensor out = Tensor::empty({groups}, dtypes::fp32);
  kernels::ReduceArgs args;
  args.rule = center.defined() ? kernels::ReduceRule::kSumSquaredDiff : kernels::ReduceRule::kSum;
  args.axis = per_column ? kernels::ReduceAxis::kColumns : kernels::ReduceAxis::kAll;
  args.rows = x.rows();
  args.cols = x.cols();
  args.x = {x.data(), x.dtype()};
  args.ldx = x.cols();
  args.center = center.defined() ? center.as<float>() : nullptr;
  args.out = out.as<float>();
  kernels::reduce(args);
  return out;
}

void divide_all(const Tensor& t, double divisor) {
  if (t.dtype() == dtypes::fp32) return kernels::divide(t.numel(), t.as<float>(), static_cast<float>(divisor));
  for (int64_t i = 0; i < t.numel(); ++i) t.as<double>()[i] /= divisor;
}

float unbiased(int64_t count) { return static_cast<float>(std::max<int64_t>(count - 1, 1)); }

// Computes 1/sqrt(squares / count + eps), and updates the running statistics if there are any.
Tensor inverse(const Tensor& mean, const Tensor& squares, int64_t count, float eps, const NormOptions* running) {
  Tensor inv = Tensor::empty(squares.shape(), dtypes::fp32);
  run_map(maps::NormStatistics{mean.as<float>(), squares.as<float>(), static_cast<float>(count), eps, inv.as<float>(),
                               running ? running->running_mean.as<float>() : nullptr,
                               running ? running->running_var.as<float>() : nullptr, running ? running->momentum : 0.0f,
                               unbiased(count)},
          inv.numel());
  return inv;
}

Tensor inverse_f64(const Tensor& mean, const Tensor& squares, int64_t count, float eps, const NormOptions* running) {
  Tensor inv = Tensor::empty(squares.shape(), dtypes::fp64);
  const double *const mu = mean.as<double>(), *const sq = squares.as<double>();
  for (int64_t j = 0; j < inv.numel(); ++j) {
    inv.as<double>()[j] = 1.0 / std::sqrt(sq[j] / static_cast<double>(count) + static_cast<double>(eps));
    if (running == nullptr) continue;
    const float mom = running->momentum;
    float *const rm = running->running_mean.as<float>(), *const rv = running->running_var.as<float>();
    rm[j] = math::lerp(rm[j], static_cast<float>(mu[j]), mom, 1.0f - mom);
    rv[j] = math::lerp(rv[j], static_cast<float>(sq[j]) / unbiased(count), mom, 1.0f - mom);
  }
  return inv;
}

}  // namespace

void detail::norm_statistics(bool per_column, const Tensor& x, const NormOptions& o, Tensor& mean, Tensor& inv) {
  const auto invert = x.dtype() == dtypes::fp64 ? inverse_f64 : inverse;
  if (!o.training) {
    const auto as_x = [&](const Tensor& t) {
      return x.dtype() == dtypes::fp64 ? Tensor::from_elements(t.shape(), dtypes::fp64, t.elements())
                                       : t.clone(MemoryKind::kActivation);
    };
    mean = as_x(o.running_mean);
    inv = invert(mean, as_x(o.running_var), 1, o.eps, nullptr);
    return;
  }
  const int64_t count = per_column ? x.rows() : x.numel();
  mean = statistic(per_column, x);
  divide_all(mean, static_cast<double>(count));
  inv = invert(mean, statistic(per_column, x, mean), count, o.eps, o.running_mean.defined() ? &o : nullptr);
}

namespace {

void normalize_f64(bool per_column, const Tensor& x, const Tensor& mean, const Tensor& inv, const Tensor& gamma,
                   const Tensor& beta, const Tensor& y) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    const int64_t j = per_column ? i % x.cols() : 0;
    const double xhat = (x.as<double>()[i] - mean.as<double>()[j]) * inv.as<double>()[j];
    y.as<double>()[i] = xhat * gamma.as<double>()[j] + beta.as<double>()[j];
  }
}

}  // namespace

kernels::NormalizeArgs detail::normalize_args(bool per_column, std::span<const Tensor> in, const Tensor& mean,
                                              const Tensor& inv) {
  kernels::NormalizeArgs args;
  args.rows = in[0].rows();
  args.cols = in[0].cols();
  args.x = {in[0].data(), in[0].dtype()};
  args.mean = mean.as<float>();
  args.inv = inv.as<float>();
  args.gamma = in[1].as<float>();
  args.beta = in[2].as<float>();
  args.column_step = per_column ? 1 : 0;
  return args;
}

void check_norm(std::string_view op, bool per_column, std::span<const Tensor> in, const NormOptions& o) {
  const Tensor& x = in[0];
  const DType dtype = x.dtype() == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32;  // dtype of gamma and beta
  require(x.shape().rank() >= 2, op, "x must be a matrix [n,f], got ", x);
  require(x.numel() > 0 || !o.training, op, "x has no elements to compute statistics of: got ", x);
  require(!o.training || x.numel() != (per_column ? x.cols() : 1), op,
          "x gives each statistic one value, and the "
          "variance of one value is not defined: got ",
          x, ", expected 2 rows or more");
  const Shape want{per_column ? x.cols() : 1};
  for (size_t i = 1; i < 3; ++i)
    require(in[i].shape() == want && in[i].dtype() == dtype, op, i == 1 ? "gamma" : "beta", " must be ", want, ' ',
            dtype, ", got ", in[i]);
  const bool running = o.running_mean.defined() || o.running_var.defined();
  require(running || o.training, op, "evaluation needs running statistics");
  if (running)
    for (const Tensor* t : {&o.running_mean, &o.running_var})
      require(t->defined() && t->shape() == want && t->dtype() == dtypes::fp32, op, "running statistics must be ", want,
              " fp32, got ", *t);
}

kernels::NormSumsArgs detail::norm_sums_args(bool per_column, const NormSaved& s, const NormSums& sums) {
  kernels::NormSumsArgs args;
  args.rows = s.x.rows();
  args.cols = s.x.cols();
  args.x = {s.x.data(), s.x.dtype()};
  args.mean = s.mean.as<float>();
  args.inv = s.inv.as<float>();
  args.column_step = per_column ? 1 : 0;
  args.sum_gy = sums.gy.as<float>();
  args.sum_gy_xhat = sums.gy_xhat.as<float>();
  if (!s.beta.defined()) return args;
  args.clip_gamma = s.gamma.as<float>();
  args.clip_beta = s.beta.as<float>();
  return args;
}

namespace {

// Computes xhat element by element: sum gy*xhat as inv * (sum gy*x - mean * sum gy) would suffer from cancellation.
NormSums gradient_sums(bool per_column, const NormSaved& s, const Tensor& gy) {
  const Tensor& x = s.x;
  if (x.dtype() != dtypes::fp64) {
    NormSums sums{Tensor::empty(s.mean.shape(), dtypes::fp32), Tensor::empty(s.mean.shape(), dtypes::fp32)};
    kernels::NormSumsArgs args = norm_sums_args(per_column, s, sums);
    args.gy = {gy.data(), gy.dtype()};
    kernels::norm_sums(args);
    return sums;
  }
  NormSums sums{Tensor::zeros(s.mean.shape(), dtypes::fp64), Tensor::zeros(s.mean.shape(), dtypes::fp64)};
  for (int64_t i = 0; i < x.numel(); ++i) {
    const int64_t j = per_column ? i % x.cols() : 0;
    const double g = gy.as<double>()[i];
    sums.gy.as<double>()[j] += g;
    sums.gy_xhat.as<double>()[j] += g * ((x.as<double>()[i] - s.mean.as<double>()[j]) * s.inv.as<double>()[j]);
  }
  return sums;
}

}  // namespace

NormSums detail::norm_means(bool per_column, const NormSaved& s, const NormSums& sums) {
  if (!s.training) {
    const Tensor zeros = Tensor::zeros(sums.gy.shape(), sums.gy.dtype());
    return {zeros, zeros};
  }
  const auto count = static_cast<double>(per_column ? s.x.rows() : s.x.numel());
  divide_all(sums.gy, count);
  divide_all(sums.gy_xhat, count);
  return sums;
}

kernels::NormalizeBackwardArgs detail::normalize_backward_args(bool per_column, const NormSaved& s,
                                                               const NormSums& means, const Tensor& gx) {
  kernels::NormalizeBackwardArgs args;
  args.rows = gx.rows();
  args.cols = gx.cols();
  args.x = {s.x.data(), s.x.dtype()};
  args.mean = s.mean.as<float>();
  args.inv = s.inv.as<float>();
  args.gamma = s.gamma.as<float>();
  args.mean_gy = means.gy.as<float>();
  args.mean_gy_xhat = means.gy_xhat.as<float>();
  args.column_step = per_column ? 1 : 0;
  args.gx = {gx.data(), gx.dtype()};
  args.clip_beta = s.beta.defined() ? s.beta.as<float>() : nullptr;
  return args;
}

void detail::norm_input_gradient(bool per_column, const NormSaved& s, const Tensor& gy, const NormSums& sums,
                                 const Tensor& gx) {
  const NormSums means = norm_means(per_column, s, sums);
  if (gy.dtype() == dtypes::fp64) {
    for (int64_t i = 0; i < gy.numel(); ++i) {
      const int64_t j = per_column ? i % gy.cols() : 0;
      const double xhat = (s.x.as<double>()[i] - s.mean.as<double>()[j]) * s.inv.as<double>()[j];
      gx.as<double>()[i] = ((gy.as<double>()[i] - means.gy.as<double>()[j]) - xhat * means.gy_xhat.as<double>()[j]) *
                           (s.gamma.as<double>()[j] * s.inv.as<double>()[j]);
    }
  } else {
    kernels::NormalizeBackwardArgs args = normalize_backward_args(per_column, s, means, gx);
    args.gy = {gy.data(), gy.dtype()};
    kernels::normalize_backward(args);
  }
}

void norm_backward(bool per_column, NormSaved& s, const Tensor& gy, std::span<GradSlot> g) {
  const NormSums sums = gradient_sums(per_column, s, gy);
  if (g[1].wanted()) g[1].set_rounded(sums.gy_xhat.clone(MemoryKind::kActivation));
  if (g[2].wanted()) g[2].set_rounded(sums.gy.clone(MemoryKind::kActivation));
  if (!g[0].wanted()) return;
  // Overwrite gy in place if nothing else reads it: 2/3 of the traffic, and one buffer less at the memory peak.
  const DType dtype = g[0].stored_dtype();
  const bool in_place = current_device().is_cpu() && gy.storage().owners() == 1 && gy.dtype() == dtype;
  const Tensor gx = in_place ? gy : Tensor::empty(gy.shape(), dtype);
  norm_input_gradient(per_column, s, gy, sums, gx);
  g[0].set_rounded(gx);
}

namespace {

// Batch norm of x[..,f] with one statistic per feature (Ioffe and Szegedy 2015, arXiv 1502.03167), and tensor norm: a
// single mean and variance over all of x[n,f], with a single gain and bias (Xilinx brevitas, TensorNorm).
template <bool kPerColumn>
struct Norm {
  static constexpr std::string_view kName = kPerColumn ? "batch_norm" : "tensor_norm";
  using Saved = NormSaved;
  static Tensor forward(Saved& s, std::span<const Tensor> in, const NormOptions& options) {
    require_values(kName, "x", in[0]);
    check_norm(kName, kPerColumn, in, options);
    const Tensor &x = in[0], &gamma = in[1], &beta = in[2];
    Tensor mean, inv;
    Tensor y = Tensor::empty(x.shape(), x.dtype());
    norm_statistics(kPerColumn, x, options, mean, inv);
    if (x.dtype() == dtypes::fp64) {
      normalize_f64(kPerColumn, x, mean, inv, gamma, beta, y);
    } else {
      kernels::NormalizeArgs args = normalize_args(kPerColumn, in, mean, inv);
      args.y = {y.data(), y.dtype()};
      kernels::normalize(args);
    }
    s = {keep(x), keep(mean), keep(inv), keep(gamma), options.training};
    return y;
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    norm_backward(kPerColumn, s, gy[0], g);
  }
};

}  // namespace

Var batch_norm(const Var& x, const Var& gamma, const Var& beta, const NormOptions& options) {
  if (x.dtype() == dtypes::int32) return integer_batch_norm(x, gamma, beta, options);
  return apply<Norm<true>>({x, gamma, beta}, options);
}

Var tensor_norm(const Var& x, const Var& gamma, const Var& beta, const NormOptions& options) {
  return apply<Norm<false>>({x, gamma, beta}, options);
}

}  // namespace bitgrad
