// y = the largest element of each window. Saves the taps of the maxima; for 1-bit codes it saves the codes instead,
// from which backward recomputes the taps.
#include "kernels/conv.h"
#include "ops/common.h"
#include "ops/pool.h"

namespace bitgrad {
namespace {

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
    const auto runs = with_run(windows, maps::pools::kRun);
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

}  // namespace

Var max_pool(const Var& x, const PoolOptions& options) { return apply<MaxPool>({x}, options); }

}  // namespace bitgrad
