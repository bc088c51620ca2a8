// Signs of a normalization, optionally followed by max_pool, without storing the normalized values; in evaluation and
// in training.
#include "bitgrad/quant/quantizer.h"
#include "kernels/elementwise.h"
#include "kernels/quantize.h"
#include "ops/common.h"
#include "ops/norm.h"
#include "ops/pool.h"

namespace bitgrad {

using detail::norm_statistics, detail::normalize_args, detail::NormSums;

namespace {

void check(std::string_view op, bool per_column, std::span<const Tensor> in, const NormOptions& o) {
  require(in[0].dtype() == dtypes::fp32, op, "x: got ", in[0], ", expected fp32 for the signs of its norm");
  require_values(op, "x", in[0]);
  check_norm(op, per_column, in, o);
}

// With known statistics.
Tensor signs_of(bool per_column, std::span<const Tensor> in, const Tensor& mean, const Tensor& inv,
                std::shared_ptr<const QuantParams> params, uint32_t* flags) {
  Tensor codes = Tensor::empty(in[0].shape(), dtypes::bint1).with_quant(std::move(params));
  const Tensor sums = row_sums_place(codes);
  kernels::NormalizeSignArgs args;
  args.norm = normalize_args(per_column, in, mean, inv);
  args.codes = codes.data();
  args.stride = codes.stride();
  args.flags = flags;
  if (sums.defined()) args.row_ones = sums.as<int32_t>();
  kernels::normalize_sign(args);
  return codes;
}

struct BatchNormSigns {
  static constexpr std::string_view kName = "batch_norm";
  using Saved = NormSaved;
  static Tensor forward(Saved& s, std::span<const Tensor> in, const NormOptions& options, const SignOptions& signs) {
    check(kName, true, in, options);
    Tensor mean, inv;
    norm_statistics(true, in[0], options, mean, inv);
    s = {keep(in[0]), keep(mean), keep(inv), keep(in[1]), options.training, signs.clip ? keep(in[2]) : Tensor()};
    return signs_of(true, in, mean, inv, signs.params, signs.flags);
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    norm_backward(true, s, gy[0], g);
  }
};

// Saves the signs with the pool, which can recompute from them where the maxima were.
struct BatchNormSignsPool {
  static constexpr std::string_view kName = "batch_norm";
  struct Saved {
    NormSaved norm;
    Tensor codes;
    PoolOptions pool;
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in, const NormOptions& options, const SignOptions& signs) {
    s.pool = *signs.pool;
    const Tensor codes = BatchNormSigns::forward(s.norm, in, options, signs);
    s.codes = keep(codes.without_quant());
    return max_pool(Var(codes), s.pool).value();
  }

  static kernels::MaxPoolGradientArgs pool_args(const Saved& s, const Tensor& gy) {
    const Shape& shape = s.norm.x.shape();
    kernels::MaxPoolGradientArgs args;
    args.geometry = pool_windows(kName, shape, s.pool, maps::pools::kRun).g;
    args.images = shape[0];
    args.channels = shape[3];
    args.bits = static_cast<const uint64_t*>(s.codes.data());
    args.words = s.codes.stride() / 8;
    args.gy = gy.as<float>();
    return args;
  }

  static void backward(Saved& s, std::span<const Tensor> gy_edge, std::span<GradSlot> g) {
    const Tensor gy = wide(gy_edge[0]);
    const kernels::MaxPoolGradientArgs pool = pool_args(s, gy);
    const Shape& features = s.norm.mean.shape();
    const NormSums sums{Tensor::empty(features, dtypes::fp32), Tensor::empty(features, dtypes::fp32)};
    kernels::cpu::norm_sums_of_pool(detail::norm_sums_args(true, s.norm, sums), pool);
    if (g[1].wanted()) g[1].set_rounded(sums.gy_xhat.clone(MemoryKind::kActivation));
    if (g[2].wanted()) g[2].set_rounded(sums.gy.clone(MemoryKind::kActivation));
    if (!g[0].wanted()) return;
    const Tensor gx = Tensor::empty(s.norm.x.shape(), dtypes::fp32);
    const NormSums means = detail::norm_means(true, s.norm, sums);
    kernels::cpu::normalize_backward_of_pool(detail::normalize_backward_args(true, s.norm, means, gx), pool);
    g[0].set_rounded(gx);
  }
};

}  // namespace

Tensor norm_signs(std::string_view op, bool per_column, std::span<const Tensor> in, const NormOptions& options,
                  std::shared_ptr<const QuantParams> params, uint32_t* flags) {
  check(op, per_column, in, options);
  Tensor mean, inv;
  norm_statistics(per_column, in[0], options, mean, inv);
  return signs_of(per_column, in, mean, inv, std::move(params), flags);
}

Var batch_norm_signs(const Var& x, const Var& gamma, const Var& beta, const NormOptions& options,
                     const SignOptions& signs) {
  if (signs.pool != nullptr) return apply<BatchNormSignsPool>({x, gamma, beta}, options, signs);
  return apply<BatchNormSigns>({x, gamma, beta}, options, signs);
}

}  // namespace bitgrad
