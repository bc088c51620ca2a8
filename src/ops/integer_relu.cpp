// y = max(q, 0) of int32 with a scale and no zero point; the scale is unchanged. Backward: gy passes where q > 0; one
// bit per element is saved.
#include "bitgrad/ops/ops.h"
#include "ops/common.h"
#include "ops/map/integers.h"

namespace bitgrad {
namespace {

struct IntegerRelu {
  static constexpr std::string_view kName = "integer_relu";
  struct Saved {
    Tensor mask;
  };

  static Tensor forward(Saved& s, std::span<const Tensor> in) {
    const Tensor& x = in[0];
    require(x.dtype() == dtypes::int32 && x.contiguous(), kName, "x: got ", x,
            ", expected dense int32, such as the output of integer_linear");
    const ScaleMap map = x.scale_map();
    require(map.zero == nullptr && map.offset == nullptr, kName, "x ", x, " has a zero point: 0 is not its code 0");
    const Tensor y = Tensor::empty(x.shape(), dtypes::int32), mask = Tensor::empty({x.rows(), x.cols()}, dtypes::bint1);
    run_map(maps::IntegerReluRuns{x.cols(), x.as<int32_t>(), y.as<int32_t>(), static_cast<uint64_t*>(mask.data())},
            x.rows() * ((x.cols() + 63) / 64), kMapGrain / 64);
    s.mask = keep(mask);
    return y.with_quant(x.quant());
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (g[0].wanted()) g[0].set_rounded(masked(wide(gy[0]), s.mask));
  }
};

}  // namespace

Var integer_relu(const Var& x) { return apply<IntegerRelu>({x}); }

}  // namespace bitgrad
