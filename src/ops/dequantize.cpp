// Values of a quantized tensor as fp32: y = s * (q - z), or s * q + m. Backward: gx = gy, as gradients are taken with
// respect to the value.
#include "bitgrad/ops/ops.h"
#include "ops/common.h"

namespace bitgrad {
namespace {

struct Dequantize {
  static constexpr std::string_view kName = "dequantize";
  struct Saved {};

  static Tensor forward(Saved&, std::span<const Tensor> in) { return dequantize_tensor(in[0]); }
  static void backward(Saved&, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (g[0].wanted()) g[0].set_rounded(gy[0].dtype() == g[0].dtype() ? gy[0] : wide(gy[0]));
  }
};

}  // namespace

Var dequantize(const Var& x) { return apply<Dequantize>({x}); }

}  // namespace bitgrad
