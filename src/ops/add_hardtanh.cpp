#include "bitgrad/ops/ops.h"

#include "bitgrad/ops/unary.h"
#include "kernels/fused_elementwise.h"
#include "ops/common.h"

namespace bitgrad {
namespace {

struct AddHardtanh {
  static constexpr std::string_view kName = "hardtanh";
  struct Saved {
    Tensor inside;  // bit mask of all elements, as a single row
  };

  static uint64_t* words(const Tensor& bits) { return static_cast<uint64_t*>(bits.data()); }

  static Tensor forward(Saved& s, std::span<const Tensor> in) {
    Tensor y = Tensor::empty(in[0].shape(), dtypes::fp32);
    const Tensor inside = will_backward() ? Tensor::empty({1, y.numel()}, dtypes::bint1) : Tensor();
    kernels::cpu::add_hardtanh(y.numel(), in[0].as<float>(), in[1].as<float>(), y.as<float>(),
                               inside.defined() ? words(inside) : nullptr);
    s.inside = keep(inside);
    return y;
  }
  static void backward(Saved& s, std::span<const Tensor> gy_edge, std::span<GradSlot> g) {
    const bool shared = gy_edge[0].storage().shared();
    const Tensor gy = wide(gy_edge[0]);
    const Tensor gx = shared && gy.data() == gy_edge[0].data() ? Tensor::empty(gy.shape(), dtypes::fp32) : gy;
    kernels::cpu::times_bits(gy.numel(), gy.as<float>(), words(s.inside), gx.as<float>());
    for (GradSlot& slot : g)
      if (slot.wanted()) slot.set_rounded(gx);
  }
};

bool dense(const Tensor& x) { return x.dtype() == dtypes::fp32 && !x.quant() && x.contiguous(); }

}  // namespace

Var add_hardtanh(const Var& a, const Var& b) {
  const bool one = current_device().is_cpu() && a.defined() && b.defined() && dense(a.value()) && dense(b.value()) &&
                   a.shape() == b.shape() && a.value().device().is_cpu() && b.value().device().is_cpu();
  return one ? apply<AddHardtanh>({a, b}) : unary(UnaryOp::hardtanh, add(a, b));
}

}  // namespace bitgrad
