// Values of a quantized x: y = s * (q - z), or s * q + m, in fp32; for int32: y = float(q) * s; rounded once if y is
// bf16. Backward: gx = gy, because gradients are taken with respect to the value.
#include "ops/dequantize.h"

#include "bitgrad/ops/ops.h"
#include "ops/common.h"
#include "ops/map/integers.h"
#include "quant/straight_through.h"

namespace bitgrad {
namespace {

Tensor int32_values(std::string_view op, const Tensor& x, MemoryKind kind) {
  const ScaleMap map = x.scale_map();
  require(x.contiguous() && map.zero == nullptr && map.offset == nullptr, op, "x ", x,
          " must be dense int32 without zero points or offsets");
  Tensor y = Tensor::empty(x.shape(), dtypes::fp32, kind);
  detail::run_elements(maps::IntegerValues{{x.cols(), map}, x.as<int32_t>(), y.as<float>()}, x.rows());
  return y;
}

struct Dequantize {
  static constexpr std::string_view kName = "dequantize";
  struct Saved {};

  static Tensor forward(Saved&, std::span<const Tensor> in, DType y) {
    require_result(kName, y);
    const MemoryKind kind = y == dtypes::bf16 ? MemoryKind::kWorkspace : MemoryKind::kActivation;
    return narrowed(values_of(kName, in[0], kind), y);
  }
  static void backward(Saved&, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (g[0].wanted()) g[0].set_rounded(gy[0].dtype() == g[0].dtype() ? gy[0] : wide(gy[0]));
  }
};

}  // namespace

Tensor values_of(std::string_view op, const Tensor& x, MemoryKind kind) {
  if (x.defined() && x.dtype() == dtypes::int32) return int32_values(op, x, kind);
  require(x.defined() && x.dtype().is_code(), op, "x: got ", x, ", expected codes of at most 8 bits, or int32");
  return dequantize_tensor(x, kind);
}

Var dequantize(const Var& x, DType y) { return apply<Dequantize>({x}, y); }

}  // namespace bitgrad
