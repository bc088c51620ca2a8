// y = the mean of each window. Nothing is saved for backward.
#include "ops/map/avg_pool.h"

#include "ops/common.h"
#include "ops/pool.h"

namespace bitgrad {
namespace {

constexpr std::string_view kAvgPool = "avg_pool";
constexpr int64_t kDeviceLanes = 4;

struct AvgPool {
  static constexpr std::string_view kName = kAvgPool;
  struct Saved {
    Shape shape;
    PoolOptions options;
  };

  static Tensor forward(Saved& s, std::span<const Tensor> in, const PoolOptions& options) {
    const Tensor& x = in[0];
    require_values(kAvgPool, "x", x);
    const auto windows = pool_windows(kAvgPool, x.shape(), options, kDeviceLanes);
    Tensor y = Tensor::empty(pool_shape(x.shape()[0], windows), x.dtype());
    if (x.dtype() == dtypes::bf16)
      run_pool(maps::AvgPoolBf16{{windows, x.as<uint16_t>(), y.as<uint16_t>()}}, y.rows(), windows);
    else if (x.dtype() == dtypes::fp64)
      run_pool(maps::AvgPoolFp64{{windows, x.as<double>(), y.as<double>()}}, y.rows(), windows);
    else
      run_pool(maps::AvgPoolValues{{windows, x.as<float>(), y.as<float>()}}, y.rows(), windows);
    s = {x.shape(), options};
    return y;
  }
  static void backward(Saved& s, std::span<const Tensor> gy_edge, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    const Tensor gy = wide(gy_edge[0]), gx = Tensor::empty(s.shape, gy.dtype());
    const auto windows = pool_windows(kAvgPool, s.shape, s.options, kDeviceLanes);
    if (gy.dtype() == dtypes::fp64)
      run_pool(maps::AvgPoolGradientFp64{{windows, gy.as<double>(), gx.as<double>()}}, gx.rows(), windows);
    else
      run_pool(maps::AvgPoolGradient{{windows, gy.as<float>(), gx.as<float>()}}, gx.rows(), windows);
    g[0].set_rounded(gx);
  }
};

}  // namespace

Var avg_pool(const Var& x, const PoolOptions& options) { return apply<AvgPool>({x}, options); }

Var global_avg_pool(const Var& x) {
  const Shape& s = x.shape();
  require(s.rank() == 4, "global_avg_pool", "x must be images [n,h,w,c]: got ", x.value());
  const std::array<int64_t, 2> image{s[1], s[2]};
  return reshape(avg_pool(x, {image, image, {}}), {s[0], s[3]});
}

}  // namespace bitgrad
