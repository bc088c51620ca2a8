// max_pool: the largest element of each window; saves the taps of the maxima, for 1-bit codes the codes instead, from
// which backward recomputes the taps. avg_pool: the mean of each window; saves nothing.
#include "ops/pool.h"

#include <algorithm>

#include "kernels/conv.h"
#include "ops/common.h"
#include "ops/map/avg_pool.h"
#include "ops/product/windows.h"

namespace bitgrad {

std::array<int64_t, 2> pool_output(std::string_view where, int64_t h, int64_t w, const PoolOptions& options) {
  Conv2dOptions conv;
  conv.kernel = options.size;
  conv.stride = options.stride;
  conv.padding = options.padding;
  const auto [oh, ow] = detail::conv_output(where, h, w, conv);
  const auto check = [&](const char* axis, int64_t windows, size_t i, int64_t size) {
    const int64_t last = (windows - 1) * options.stride[i] - options.padding[i];
    require(options.padding[i] < options.size[i] && last < size, where, "a window of ", options.size[0], " x ",
            options.size[1], " pixels is outside the image of ", h, " x ", w, " altogether: got padding [",
            options.padding[0], ',', options.padding[1], ',', options.padding[2], ',', options.padding[3],
            "], expected less than the window's ", axis, ". Use less padding");
  };
  check("rows", oh, 0, h);
  check("columns", ow, 1, w);
  return {oh, ow};
}

maps::pools::Windows pool_windows(std::string_view op, const Shape& x, const PoolOptions& options, int64_t device_run) {
  require(x.rank() == 4, op, "x must be images [n,h,w,c]: got ", x);
  const auto [oh, ow] = pool_output(op, x[1], x[2], options);
  maps::pools::Windows out{};
  out.g.h = x[1];
  out.g.w = x[2];
  out.g.oh = oh;
  out.g.ow = ow;
  out.g.kh = options.size[0];
  out.g.kw = options.size[1];
  out.g.stride_y = options.stride[0];
  out.g.stride_x = options.stride[1];
  out.g.top = options.padding[0];
  out.g.left = options.padding[1];
  out.c = x[3];
  out.run = current_device().is_cpu() ? maps::pools::kRun : device_run;
  return out;
}

namespace {

// [n,oh,ow,c]
Shape pool_shape(int64_t samples, const maps::pools::Windows& windows) {
  return {samples, windows.g.oh, windows.g.ow, windows.c};
}

// Applies f over the runs of the results, or of the pixels of the images.
template <typename Map>
void run_pool(const Map& f, int64_t pixels, const maps::pools::Windows& windows) {
  run_map(f, pixels * windows.runs(), std::max<int64_t>(1, kMapGrain / (windows.run * windows.g.taps())));
}

constexpr std::string_view kMaxPool = "max_pool";
constexpr int64_t kByteTaps = 256;
constexpr int64_t kDeviceRun = 4;

bool of_bits(const Tensor& x) { return x.dtype().is_code() && x.dtype().bits() == 1; }

void check_pooled(const Tensor& x) {
  if (!x.dtype().is_code()) return require_values(kMaxPool, "x", x);
  require(x.dtype().kind() != DTypeKind::kCodebook, kMaxPool,
          "x must be floats or codes of kind int, uint or sign, got ", x, ". Dequantize it first");
  require(x.contiguous(), kMaxPool, "x must be dense, got a view or another layout of ", x);
  if (!x.quant()) return;
  const Granularity& g = x.quant()->granularity;
  require(g.kind == Granularity::kTensor || (g.kind == Granularity::kChannel && g.axis == 1), kMaxPool, "x ", x,
          " has scales per ", g, ", which differ within a window: expected per tensor or channel(1)");
}

Tensor empty_taps(const Shape& shape, bool wide, MemoryKind kind) {
  return Tensor::empty(shape, wide ? dtypes::int32 : dtypes::uint8, kind);
}

// Bytes of rows [pixels, c] without padding; rows of a tensor of codes are aligned to 8 bytes.
Tensor taps_for(const maps::pools::Windows& windows, int64_t samples, MemoryKind kind) {
  const bool wide = windows.g.taps() > kByteTaps;
  return empty_taps({1, pool_shape(samples, windows).numel()}, wide, kind);
}

maps::pools::Taps taps_in(const Tensor& t) {
  return {t.defined() ? t.data() : nullptr, t.defined() && t.dtype() == dtypes::int32};
}

void pool_codes(const Tensor& x, const maps::pools::Windows& windows, const Tensor& y, const Tensor& taps) {
  const int64_t pixels = y.rows(), words = x.stride() / 8;
  const auto* const from = static_cast<const uint64_t*>(x.data());
  auto* const to = static_cast<uint64_t*>(y.data());
  const int bits = x.dtype().bits();
  if (bits == 1) {
    run_map(maps::MaxPoolBits{windows, from, to, words}, pixels * words,
            std::max<int64_t>(1, kMapGrain / windows.g.taps()));
    return;
  }
  // Two's complement with the sign bit flipped is ordered like unsigned integers.
  const auto flip = static_cast<uint8_t>(x.dtype().kind() == DTypeKind::kInt ? 1u << (bits - 1) : 0u);
  if (windows.g.taps() > kByteTaps)
    run_pool(maps::MaxPoolCodesWide{{windows, from, to, words, bits, flip, taps_in(taps)}}, pixels, windows);
  else
    run_pool(maps::MaxPoolCodes{{windows, from, to, words, bits, flip, taps_in(taps)}}, pixels, windows);
}

struct MaxPool {
  static constexpr std::string_view kName = kMaxPool;
  struct Saved {
    Tensor kept;  // taps, or x if it has 1-bit codes
    PoolOptions options;
    Shape shape;
  };

  static Tensor forward(Saved& s, std::span<const Tensor> in, const PoolOptions& options) {
    const Tensor& x = in[0];
    check_pooled(x);
    const auto windows =
        pool_windows(kMaxPool, x.shape(), options, x.dtype().is_code() ? maps::pools::kRun : kDeviceRun);
    const int64_t samples = x.shape()[0];
    const Tensor y = Tensor::empty(pool_shape(samples, windows), x.dtype());
    const bool bits = of_bits(x);
    const Tensor taps = bits || !will_backward() ? Tensor() : taps_for(windows, samples, MemoryKind::kActivation);
    if (x.dtype().is_code())
      pool_codes(x, windows, y, taps);
    else if (x.dtype() == dtypes::bf16)
      run_pool(maps::MaxPoolBf16{{windows, x.as<uint16_t>(), y.as<uint16_t>(), taps_in(taps)}}, y.rows(), windows);
    else if (x.dtype() == dtypes::fp64)
      run_pool(maps::MaxPoolFp64{{windows, x.as<double>(), y.as<double>(), taps_in(taps)}}, y.rows(), windows);
    else
      run_pool(maps::MaxPoolValues{{windows, x.as<float>(), y.as<float>(), taps_in(taps)}}, y.rows(), windows);
    s = {bits ? keep(x.without_quant()) : (taps.defined() ? keep(taps) : Tensor()), options, x.shape()};
    return y.with_quant(x.quant());
  }

  // The taps of the maxima, also for codes.
  static Tensor taps_of(const Saved& s, const maps::pools::Windows& windows) {
    if (s.kept.dtype().bits() != 1) return s.kept;
    Tensor taps = taps_for(windows, s.shape[0], MemoryKind::kWorkspace);
    maps::pools::Windows runs = windows;
    runs.run = maps::pools::kRun;
    run_pool(maps::FirstSetTaps{runs, taps_in(taps), static_cast<const uint64_t*>(s.kept.data()), s.kept.stride() / 8},
             pool_shape(s.shape[0], windows).rows(), runs);
    return taps;
  }

  // CPU only. If taps are saved (instead of 1-bit codes), they must be bytes.
  static void rows_backward(const Saved& s, const maps::pools::Windows& windows, const Tensor& gy, const Tensor& gx) {
    kernels::MaxPoolGradientArgs args;
    args.geometry = windows.g;
    args.images = s.shape[0];
    args.channels = windows.c;
    if (s.kept.dtype().bits() == 1) {
      args.bits = static_cast<const uint64_t*>(s.kept.data());
      args.words = s.kept.stride() / 8;
    } else {
      args.taps = static_cast<const uint8_t*>(s.kept.data());
    }
    args.gy = gy.as<float>();
    args.gx = gx.as<float>();
    kernels::max_pool_gradient(args);
  }

  static void backward(Saved& s, std::span<const Tensor> gy_edge, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    const Tensor gy = wide(gy_edge[0]);
    const auto windows = pool_windows(kMaxPool, s.shape, s.options, kDeviceRun);
    if (current_device().is_cpu() && gy.dtype() == dtypes::fp32 && s.kept.dtype() != dtypes::int32) {
      const Tensor gx = Tensor::empty(s.shape, gy.dtype());
      rows_backward(s, windows, gy, gx);
      return g[0].set_rounded(gx);
    }
    const Tensor taps = taps_of(s, windows), gx = Tensor::empty(s.shape, gy.dtype());
    if (gy.dtype() == dtypes::fp64)
      run_pool(maps::MaxPoolGradientFp64{{windows, taps_in(taps), gy.as<double>(), gx.as<double>()}}, gx.rows(),
               windows);
    else
      run_pool(maps::MaxPoolGradient{{windows, taps_in(taps), gy.as<float>(), gx.as<float>()}}, gx.rows(), windows);
    g[0].set_rounded(gx);
  }
};

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

Var max_pool(const Var& x, const PoolOptions& options) { return apply<MaxPool>({x}, options); }
Var avg_pool(const Var& x, const PoolOptions& options) { return apply<AvgPool>({x}, options); }

Var global_avg_pool(const Var& x) {
  const Shape& s = x.shape();
  require(s.rank() == 4, "global_avg_pool", "x must be images [n,h,w,c]: got ", x.value());
  const std::array<int64_t, 2> image{s[1], s[2]};
  return reshape(avg_pool(x, {image, image, {}}), {s[0], s[3]});
}

}  // namespace bitgrad
