// hardtanh(a + b), and hardtanh(batch_norm(x) + b), the end of a residual unit, each as one op: forward reads its
// inputs once and keeps one bit per element; backward of the latter applies the mask in the pass that computes the sums
// of the norm.
#include "bitgrad/ops/unary.h"
#include "kernels/elementwise.h"
#include "ops/common.h"
#include "ops/norm.h"

namespace bitgrad {
namespace {

uint64_t* words(const Tensor& bits) { return bits.defined() ? static_cast<uint64_t*>(bits.data()) : nullptr; }

// Where the masked gradient goes: over gy, unless others read it.
Tensor place_of_masked(const Tensor& gy_edge, const Tensor& gy) {
  const bool shared = gy_edge.storage().shared() && gy.data() == gy_edge.data();
  return shared ? Tensor::empty(gy.shape(), dtypes::fp32) : gy;
}

struct AddHardtanh {
  static constexpr std::string_view kName = "hardtanh";
  struct Saved {
    Tensor inside;  // bit mask of all elements, as a single row
  };

  static Tensor forward(Saved& s, std::span<const Tensor> in) {
    Tensor y = Tensor::empty(in[0].shape(), dtypes::fp32);
    const Tensor inside = will_backward() ? Tensor::empty({1, y.numel()}, dtypes::bint1) : Tensor();
    kernels::cpu::add_hardtanh(y.numel(), in[0].as<float>(), in[1].as<float>(), y.as<float>(), words(inside));
    s.inside = keep(inside);
    return y;
  }
  static void backward(Saved& s, std::span<const Tensor> gy_edge, std::span<GradSlot> g) {
    const Tensor gy = wide(gy_edge[0]), gx = place_of_masked(gy_edge[0], gy);
    kernels::cpu::times_bits(gy.numel(), gy.as<float>(), words(s.inside), gx.as<float>());
    for (GradSlot& slot : g)
      if (slot.wanted()) slot.set_rounded(gx);
  }
};

struct BatchNormAddHardtanh {
  static constexpr std::string_view kName = "batch_norm";
  struct Saved {
    NormSaved norm;
    Tensor inside;  // bit mask of all elements, as a single row
  };

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
    const Tensor gy = wide(gy_edge[0]), masked = place_of_masked(gy_edge[0], gy);
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

// Whether both are fp32 of one shape on the CPU, where the ops above run.
bool on_cpu(const Var& a, const Var& b) {
  return current_device().is_cpu() && a.defined() && b.defined() && dense(a.value()) && dense(b.value()) &&
         a.shape() == b.shape();
}

}  // namespace

Var add_hardtanh(const Var& a, const Var& b) {
  return on_cpu(a, b) ? apply<AddHardtanh>({a, b}) : unary(UnaryOp::hardtanh, add(a, b));
}

bool normalizes_before_hardtanh(const Var& x, const Var& b) {
  return on_cpu(x, b) && x.shape().rank() >= 2 && kernels::cpu::normalize_joins(x.value().rows(), x.value().cols());
}

Var batch_norm_add_hardtanh(const Var& x, const Var& gamma, const Var& beta, const Var& b, const NormOptions& options) {
  return apply<BatchNormAddHardtanh>({x, gamma, beta, b}, options);
}

}  // namespace bitgrad
