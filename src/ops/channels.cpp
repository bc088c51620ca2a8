// prelu and shift: one learned value per channel.
#include "ops/map/channels.h"

#include "bitgrad/ops/ops.h"
#include "ops/common.h"
#include "ops/strided.h"

namespace bitgrad {
namespace {

void check_numbers(std::string_view op, const char* what, const Tensor& x, const Tensor& numbers) {
  require_values(op, "x", x);
  const DType dtype = x.dtype() == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32;
  require(x.shape().rank() >= 1 && numbers.shape() == Shape{x.cols()} && numbers.dtype() == dtype, op, what,
          " must be [", x.cols(), "] ", dtype, ", got ", numbers);
}

struct Prelu {
  static constexpr std::string_view kName = "prelu";
  struct Saved {
    Tensor x, slope;
  };

  static Tensor forward(Saved& s, std::span<const Tensor> in) {
    const Tensor &x = in[0], &slope = in[1];
    check_numbers(kName, "slope", x, slope);
    Tensor y = Tensor::empty(x.shape(), x.dtype());
    if (x.dtype() == dtypes::fp64) {
      for (int64_t i = 0; i < x.numel(); ++i) {
        const double v = x.as<double>()[i];
        y.as<double>()[i] = v > 0 ? v : v * slope.as<double>()[i % x.cols()];
      }
    } else {
      run_map(maps::PreluValues{x.data(), x.dtype() == dtypes::bf16, x.cols(), slope.as<float>(), y.data()}, x.rows(),
              rows_per_task(x.cols()));
    }
    s = {keep(x), keep(slope)};
    return y;
  }

  static void backward_f64(const Saved& s, const Tensor& gy, const Tensor& gx, const Tensor& terms) {
    for (int64_t i = 0; i < gy.numel(); ++i) {
      const double v = s.x.as<double>()[i], g = gy.as<double>()[i];
      if (gx.defined()) gx.as<double>()[i] = v > 0 ? g : g * s.slope.as<double>()[i % gy.cols()];
      if (terms.defined()) terms.as<double>()[i] = v > 0 ? 0.0 : g * v;
    }
  }
  static void backward(Saved& s, std::span<const Tensor> gy_edge, std::span<GradSlot> g) {
    const Tensor gy = wide(gy_edge[0]);
    const Tensor gx = g[0].wanted() ? Tensor::empty(gy.shape(), gy.dtype()) : Tensor();
    const Tensor terms = g[1].wanted() ? Tensor::empty(gy.shape(), gy.dtype(), MemoryKind::kWorkspace) : Tensor();
    if (gy.dtype() == dtypes::fp64) {
      backward_f64(s, gy, gx, terms);
    } else {
      const auto data = [](const Tensor& t) { return t.defined() ? t.as<float>() : nullptr; };
      run_map(maps::PreluGradient{s.x.data(), s.x.dtype() == dtypes::bf16, gy.cols(), s.slope.as<float>(),
                                  gy.as<float>(), data(gx), data(terms)},
              gy.rows(), rows_per_task(gy.cols()));
    }
    if (gx.defined()) g[0].set_rounded(gx);
    if (terms.defined()) g[1].set_rounded(column_sums(terms));
  }
};

struct ShiftChannels {
  static constexpr std::string_view kName = "shift";
  struct Saved {};

  static Tensor forward(Saved&, std::span<const Tensor> in) {
    const Tensor &x = in[0], &b = in[1];
    check_numbers(kName, "b", x, b);
    const Shape rows{x.rows(), x.cols()};
    return broadcast(kernels::PointwiseOp::add, x.reshape(rows), b, rows, x.dtype()).reshape(x.shape());
  }
  static void backward(Saved&, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (g[0].wanted()) g[0].set_rounded(wide(gy[0]));
    if (g[1].wanted()) g[1].set_rounded(column_sums(wide(gy[0])));
  }
};

}  // namespace

Var prelu(const Var& x, const Var& slope) { return apply<Prelu>({x, slope}); }
Var shift(const Var& x, const Var& b) { return apply<ShiftChannels>({x, b}); }

}  // namespace bitgrad
