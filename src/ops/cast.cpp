// y = x in fp32 or bf16 (rounded to nearest even); gx = gy.
#include "bitgrad/ops/ops.h"
#include "kernels/elementwise.h"
#include "ops/common.h"

namespace bitgrad {
namespace {

struct Cast {
  static constexpr std::string_view kName = "cast";
  struct Saved {};

  static Tensor forward(Saved&, std::span<const Tensor> in, DType dtype) {
    const Tensor& x = in[0];
    require(x.dtype() == dtypes::fp32 || x.dtype() == dtypes::bf16, kName, "x: got ", x, ", expected fp32 or bf16");
    require_values(kName, "x", x);
    if (dtype == dtypes::bf16) return narrowed(x, dtype);
    Tensor y = Tensor::empty(x.shape(), dtype);
    kernels::from_bf16(x.numel(), x.as<uint16_t>(), y.as<float>());
    return y;
  }
  static void backward(Saved&, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (g[0].wanted()) g[0].set_rounded(gy[0].dtype() == g[0].dtype() ? gy[0] : wide(gy[0]));
  }
};

}  // namespace

Var cast(const Var& x, DType dtype) {
  require_result("cast", dtype);
  return x.defined() && x.dtype() == dtype ? x : apply<Cast>({x}, dtype);
}

}  // namespace bitgrad
