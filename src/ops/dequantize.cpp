// Values of a quantized x as fp32: y = s * (q - z), or s * q + m; of int32: y = float(q) * s. Backward: gx = gy, as
// gradients are taken with respect to the value.
#include "ops/dequantize.h"

#include "bitgrad/base/parallel.h"
#include "bitgrad/ops/ops.h"
#include "ops/common.h"

namespace bitgrad {
namespace {

Tensor int32_values(std::string_view op, const Tensor& x, MemoryKind kind) {
  const ScaleMap map = x.scale_map();
  require(x.contiguous() && map.zero == nullptr && map.offset == nullptr, op, "x ", x,
          " must be dense int32 without zero points or offsets");
  const Tensor y = Tensor::empty(x.shape(), dtypes::fp32, kind);
  const int64_t n = x.cols();
  parallel_ranges(x.rows(), 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * n; i < end * n; ++i) y.as<float>()[i] = static_cast<float>(x.as<int32_t>()[i]);
    if (map.scale == nullptr) return;
    for (int64_t r = begin; r < end; ++r)
      for (int64_t c = 0; c < n; ++c) y.as<float>()[r * n + c] *= map.scale[map.index(r, c)];
  });
  return y;
}

struct Dequantize {
  static constexpr std::string_view kName = "dequantize";
  struct Saved {};

  static Tensor forward(Saved&, std::span<const Tensor> in) { return values_of(kName, in[0]); }
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

Var dequantize(const Var& x) { return apply<Dequantize>({x}); }

}  // namespace bitgrad
