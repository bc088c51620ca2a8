// dequantize: y = s * (q - z), or s * q + m, in fp32; for int32: y = float(q) * s; rounded once if y is bf16. cast: y =
// x in fp32 or bf16 (rounded to nearest even). Backward of both: gx = gy, because gradients are taken with respect to
// the value.
#include "bitgrad/ops/ops.h"
#include "kernels/elementwise.h"
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

struct SameValues {
  struct Saved {};
  static void backward(Saved&, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (g[0].wanted()) g[0].set_rounded(gy[0].dtype() == g[0].dtype() ? gy[0] : wide(gy[0]));
  }
};

struct Dequantize : SameValues {
  static constexpr std::string_view kName = "dequantize";
  static Tensor forward(Saved&, std::span<const Tensor> in, DType y) {
    require_result(kName, y);
    const MemoryKind kind = y == dtypes::bf16 ? MemoryKind::kWorkspace : MemoryKind::kActivation;
    return narrowed(values_of(kName, in[0], kind), y);
  }
};

struct Cast : SameValues {
  static constexpr std::string_view kName = "cast";
  static Tensor forward(Saved&, std::span<const Tensor> in, DType dtype) {
    const Tensor& x = in[0];
    require(x.dtype() == dtypes::fp32 || x.dtype() == dtypes::bf16, kName, "x: got ", x, ", expected fp32 or bf16");
    require_values(kName, "x", x);
    if (dtype == dtypes::bf16) return narrowed(x, dtype);
    Tensor y = Tensor::empty(x.shape(), dtype);
    kernels::from_bf16(x.numel(), x.as<uint16_t>(), y.as<float>());
    return y;
  }
};

}  // namespace

Tensor values_of(std::string_view op, const Tensor& x, MemoryKind kind) {
  if (x.defined() && x.dtype() == dtypes::int32) return int32_values(op, x, kind);
  require(x.defined() && x.dtype().is_code(), op, "x: got ", x, ", expected codes of at most 8 bits, or int32");
  return dequantize_tensor(x, kind);
}

Var dequantize(const Var& x, DType y) { return apply<Dequantize>({x}, y); }

Var cast(const Var& x, DType dtype) {
  require_result("cast", dtype);
  return x.defined() && x.dtype() == dtype ? x : apply<Cast>({x}, dtype);
}

}  // namespace bitgrad
