// Rotary positions: each pair of elements of a head is rotated by an angle that depends on its position.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "bitgrad/ops/attention.h"
#include "ops/common.h"
#include "ops/map/attention.h"

namespace bitgrad {
namespace {

constexpr std::string_view kRope = "rope";

void check_rope(const RopeOptions& o) {
  require(o.dim >= 2 && o.dim % 2 == 0, kRope, "dim: got ", o.dim, ", expected an even number from 2 on.");
  require(std::isfinite(o.base) && o.base > 1, kRope, "base: got ", o.base, ", expected a number above 1.");
  require(std::isfinite(o.factor) && o.factor >= 1, kRope, "factor: got ", o.factor, ", expected 1 or more.");
  require(o.factor == 1 || (o.low > 0 && o.high > o.low && o.original >= 1), kRope, "low, high and original: got ",
          o.low, ", ", o.high, " and ", o.original, ", expected 0 < low < high and a length.");
}

double frequency(int64_t pair, const RopeOptions& o) {
  const double f = std::pow(o.base, -2.0 * static_cast<double>(pair) / static_cast<double>(o.dim));
  if (o.factor == 1) return f;
  const double turns = static_cast<double>(o.original) * f / (2 * std::numbers::pi);  // in the original context
  if (turns > o.high) return f;
  if (turns < o.low) return f / o.factor;
  const double smooth = (turns - o.low) / (o.high - o.low);
  return (1 - smooth) * f / o.factor + smooth * f;
}

// One head of fp32 on the CPU, as maps::TurnedPairs, without a choice per number, so that it becomes vectors.
template <bool kBack, bool kInterleaved>
void turn_head(int64_t half, const float* __restrict x, const float* __restrict cosines, float* __restrict y) {
  const int64_t step = kInterleaved ? 2 : 1, apart = kInterleaved ? 1 : half;
  for (int64_t c = 0; c < half; ++c) {
    const float cosine = cosines[c], sine = cosines[half + c], turn = kBack ? -sine : sine;
    const float a = x[c * step], b = x[c * step + apart];
    y[c * step] = a * cosine - b * turn;
    y[c * step + apart] = b * cosine + a * turn;
  }
}

struct Rope {
  static constexpr std::string_view kName = kRope;
  struct Saved {
    Tensor table;
    RopeOptions options;
    int64_t first = 0, rotated = 0;  // rotated: number of rotated heads
  };

  static Tensor forward(Saved& s, std::span<const Tensor> in, const Tensor& table, const RopeOptions& options,
                        int64_t first, int64_t rotated) {
    const Tensor& x = in[0];
    check_rope(options);
    require_values(kRope, "x", x);
    require(x.shape().rank() == 3 && x.cols() % options.dim == 0, kRope, "x must be [n,t,heads*", options.dim,
            "], got ", x);
    require(table.defined() && table.dtype() == dtypes::fp32 && table.shape().rank() == 2 &&
                table.cols() == options.dim && table.contiguous(),
            kRope, "table must be [positions,", options.dim, "] fp32, got ", table, ". Make it with rope_table");
    require(first >= 0 && first + x.shape()[1] <= table.rows(), kRope, "rows at positions ", first, " to ",
            first + x.shape()[1] - 1, ": got a table of ", table.rows(), " positions.");
    const int64_t heads = x.cols() / options.dim;
    require(rotated >= -1 && rotated <= heads, kRope, "rotated: got ", rotated, " heads of ", heads, ".");
    s = {table, options, first, rotated < 0 ? heads : rotated};
    Tensor y = Tensor::empty(x.shape(), x.dtype());
    turn(s, x, y, false);
    return y;
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    const Tensor gx = Tensor::empty(gy[0].shape(), g[0].stored_dtype());
    turn(s, gy[0], gx, true);
    g[0].set_rounded(gx);
  }

 private:
  template <typename Places>
  static maps::TurnedPairs<Places> pairs(const Saved& s, const Tensor& x, bool back, const Places& places) {
    return {x.shape()[1], x.cols() / s.options.dim, s.rotated, s.options.dim, s.first, s.options.interleaved,
            back,         s.table.as<float>(),      places};
  }
  static void turn_rows(const Saved& s, const Tensor& x, const Tensor& y, bool back) {
    const int64_t dim = s.options.dim, cols = x.cols(), turned = s.rotated * dim, rows = x.shape()[1];
    const auto head = s.options.interleaved ? (back ? turn_head<true, true> : turn_head<false, true>)
                                            : (back ? turn_head<true, false> : turn_head<false, false>);
    const float *const from = x.as<float>(), *const table = s.table.as<float>();
    float* const to = y.as<float>();
    parallel_ranges(x.rows(), rows_per_task(cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const float* const cosines = table + (s.first + r % rows) * dim;
        for (int64_t c = 0; c < turned; c += dim) head(dim / 2, from + r * cols + c, cosines, to + r * cols + c);
        std::copy_n(from + r * cols + turned, cols - turned, to + r * cols + turned);
      }
    });
  }
  static void turn(const Saved& s, const Tensor& x, const Tensor& y, bool back) {
    const int64_t heads = x.numel() / s.options.dim, grain = std::max<int64_t>(1, kMapGrain / s.options.dim);
    if (x.dtype() == dtypes::fp64)
      return run_map(maps::RopeFp64{pairs(s, x, back, maps::DoublePlaces{x.as<double>(), y.as<double>()})}, heads,
                     grain);
    if (x.dtype() == dtypes::fp32 && y.dtype() == dtypes::fp32 && current_device().is_cpu())
      return turn_rows(s, x, y, back);
    const maps::FloatPlaces places{x.data(), y.data(), x.dtype() == dtypes::bf16, y.dtype() == dtypes::bf16};
    run_map(maps::RopeValues{pairs(s, x, back, places)}, heads, grain);
  }
};

}  // namespace

Tensor rope_table(int64_t positions, const RopeOptions& options) {
  check_rope(options);
  require(positions >= 1, kRope, "positions: got ", positions, ", expected 1 or more.");
  const int64_t half = options.dim / 2;
  std::vector<float> numbers(static_cast<size_t>(positions * options.dim));
  for (int64_t i = 0; i < half; ++i) {
    const double f = frequency(i, options);
    for (int64_t p = 0; p < positions; ++p) {
      const double angle = static_cast<double>(p) * f;
      numbers[static_cast<size_t>(p * options.dim + i)] = static_cast<float>(std::cos(angle));
      numbers[static_cast<size_t>(p * options.dim + half + i)] = static_cast<float>(std::sin(angle));
    }
  }
  return Tensor::from(numbers, {positions, options.dim}, dtypes::fp32, MemoryKind::kBuffer);
}

Var rope(const Var& x, const Tensor& table, const RopeOptions& options, int64_t first, int64_t rotated) {
  return apply<Rope>({x}, table, options, first, rotated);
}

}  // namespace bitgrad
