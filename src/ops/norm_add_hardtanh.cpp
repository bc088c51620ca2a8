// hardtanh(batch_norm(x) + b), the end of a residual unit, as one op: forward reads x and b once and writes y; backward
// applies the hardtanh mask in the pass that computes the sums of the norm.
#include "kernels/fused_elementwise.h"
#include "ops/common.h"
#include "ops/norm.h"

namespace bitgrad {
namespace {

struct BatchNormAddHardtanh {
  static constexpr std::string_view kName = "batch_norm";
  struct Saved {
    NormSaved norm;
    Tensor inside;  // bit mask of all elements, as a single row
  };

  static uint64_t* words(const Tensor& bits) { return bits.defined() ? static_cast<uint64_t*>(bits.data()) : nullptr; }

  static Tensor forward(Saved& s, std::span<const Tensor> in, const NormOptions& options) {
    check_norm(kName, true, in.first(3), options);
    require_same(kName, in[0], in[3]);
    Tensor mean, inv;
    detail::norm_statistics(true, in[0], options, mean, inv);
    Tensor y = Tensor::empty(in[0].shape(), dtypes::fp32);
    const Tensor inside = will_backward() ? Tensor::empty({1, y.numel()}, dtypes::bint1) : Tensor();
    kernels::NormalizeArgs args = detail::normalize_args(true, in, mean, inv);
    args.y = y.as<float>();
    kernels::cpu::normalize_add_hardtanh(args, in[3].as<float>(), words(inside));
    s = {{keep(in[0]), keep(mean), keep(inv), keep(in[1]), options.training}, keep(inside)};
    return y;
  }

  static void backward(Saved& s, std::span<const Tensor> gy_edge, std::span<GradSlot> g) {
    const bool shared = gy_edge[0].storage().shared();
    const Tensor gy = wide(gy_edge[0]);
    const Tensor masked = shared && gy.data() == gy_edge[0].data() ? Tensor::empty(gy.shape(), dtypes::fp32) : gy;
    const NormSaved& norm = s.norm;
    const detail::NormSums sums{Tensor::empty(norm.mean.shape(), dtypes::fp32),
                                Tensor::empty(norm.mean.shape(), dtypes::fp32)};
    kernels::NormSumsArgs args;
    args.rows = gy.rows();
    args.cols = gy.cols();
    args.gy = gy.as<float>();
    args.x = norm.x.as<float>();
    args.mean = norm.mean.as<float>();
    args.inv = norm.inv.as<float>();
    args.sum_gy = sums.gy.as<float>();
    args.sum_gy_xhat = sums.gy_xhat.as<float>();
    kernels::cpu::norm_sums_of_bits(args, words(s.inside), masked.as<float>());
    if (g[1].wanted()) g[1].set_rounded(sums.gy_xhat.clone(MemoryKind::kActivation));
    if (g[2].wanted()) g[2].set_rounded(sums.gy.clone(MemoryKind::kActivation));
    if (g[3].wanted()) g[3].set_rounded(masked);  // before gx, in the order of the separate add: x may be b
    if (g[0].wanted()) {
      const Tensor gx = g[3].wanted() ? Tensor::empty(gy.shape(), dtypes::fp32) : masked;
      detail::norm_input_gradient(true, norm, masked, sums, gx);
      g[0].set_rounded(gx);
    }
  }
};

bool dense(const Tensor& x) { return x.dtype() == dtypes::fp32 && !x.quant() && x.contiguous() && x.device().is_cpu(); }

}  // namespace

bool normalizes_before_hardtanh(const Var& x, const Var& b) {
  return current_device().is_cpu() && dense(x.value()) && dense(b.value()) && x.shape() == b.shape() &&
         x.shape().rank() >= 2 && kernels::cpu::normalize_joins(x.value().rows(), x.value().cols());
}

Var batch_norm_add_hardtanh(const Var& x, const Var& gamma, const Var& beta, const Var& b, const NormOptions& options) {
  return apply<BatchNormAddHardtanh>({x, gamma, beta, b}, options);
}

}  // namespace bitgrad
