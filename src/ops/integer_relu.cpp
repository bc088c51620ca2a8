// y = max(q, 0) of int32 with a scale and no zero point; the scale stays. Backward: passes where q > 0, one bit an
// element.
#include <algorithm>

#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/ops/ops.h"
#include "ops/common.h"

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
            ", expected dense int32, such as integer_linear gives");
    const ScaleMap map = x.scale_map();
    require(map.zero == nullptr && map.offset == nullptr, kName, "x ", x, " has a zero point: 0 is not its code 0");
    const Tensor y = Tensor::empty(x.shape(), dtypes::int32), mask = Tensor::zeros({x.rows(), x.cols()}, dtypes::bint1);
    const int64_t n = x.cols();
    parallel_ranges(x.rows(), 16, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int32_t* q = x.as<int32_t>() + r * n;
        int32_t* out = y.as<int32_t>() + r * n;
        auto* bits = reinterpret_cast<uint64_t*>(static_cast<char*>(mask.data()) + r * mask.stride());
        for (int64_t j = 0; j < n; ++j) {
          out[j] = std::max(q[j], 0);
          bits[j / 64] |= uint64_t{q[j] > 0} << (j % 64);
        }
      }
    });
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
