// y = x. Backward: gx = the value of the codes of gy under a scheme, with scales computed from gy, stochastic
// (DoReFa-Net: Zhou et al. 2016, arXiv 1606.06160, eq. 12).
#include "bitgrad/ops/ops.h"
#include "ops/common.h"
#include "ops/map/gradients.h"

namespace bitgrad {
namespace {

struct QuantizeGradient {
  static constexpr std::string_view kName = "quantize_gradient";
  struct Saved {
    QuantSpec spec;
    RandomStream draws;
  };

  static Tensor forward(Saved& s, std::span<const Tensor> in, const QuantSpec& spec, const RandomStream& draws) {
    require(in[0].dtype() != dtypes::fp64, kName, "x is ", in[0], ": gradients of fp64 have no quantized form.");
    find_quantizer(spec.scheme).check(spec, /*weight=*/false);
    s = {spec, draws};
    return in[0];
  }

  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    const Tensor from = wide(gy[0]);
    QuantizeOptions how;
    how.sr = &s.draws;
    how.kind = MemoryKind::kWorkspace;
    // NaN and Inf pass through: the optimizer step finds them in the parameter's gradient and names the parameter.
    const Tensor flag = Tensor::zeros({1}, dtypes::int32, MemoryKind::kWorkspace);
    how.flags = reinterpret_cast<uint32_t*>(flag.as<int32_t>());
    const Tensor values = dequantize_tensor(quantize_dynamic(s.spec, from, how));
    run_map(maps::KeepWhereFlagged{how.flags, from.as<float>(), values.as<float>()}, values.numel());
    g[0].set_rounded(values);
  }
};

}  // namespace

Var quantize_gradient(const Var& x, const QuantSpec& spec, const RandomStream& sr) {
  return apply<QuantizeGradient>({x}, spec, sr);
}

}  // namespace bitgrad
