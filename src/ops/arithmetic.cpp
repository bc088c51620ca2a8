// y = a + b, a - b and a * b with broadcasting; sum of all elements; reshape.
#include "bitgrad/ops/ops.h"

#include <cmath>

#include "kernels/elementwise.h"
#include "ops/common.h"
#include "ops/map/gradients.h"
#include "ops/strided.h"

namespace bitgrad {
namespace {

// Returns the shape of the result.
Shape check_pair(std::string_view op, std::span<const Tensor> in) {
  const std::string_view names[] = {"a", "b"};
  for (size_t i = 0; i < 2; ++i) require_values(op, names[i], in[i]);
  require(in[0].dtype() == in[1].dtype(), op, "operands differ: got ", in[0], " and ", in[1]);
  return broadcast_shape(op, in[0], in[1]);
}

// Dtype of gradients: fp64 for fp64 operands, else fp32.
DType wide_dtype(DType dtype) { return dtype == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32; }

Tensor negated(const Tensor& g) {
  Tensor out = Tensor::empty(g.shape(), g.dtype());
  if (g.dtype() == dtypes::fp64)
    for (int64_t i = 0; i < g.numel(); ++i) out.as<double>()[i] = -g.as<double>()[i];
  else
    kernels::scale(g.numel(), g.as<float>(), -1.0f, out.as<float>());
  return out;
}

// y = a + b, or a - b.
template <kernels::PointwiseOp op>
struct AddOrSub {
  static constexpr std::string_view kName = op == kernels::PointwiseOp::add ? "add" : "sub";
  struct Saved {
    Shape a, b;
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in) {
    const Shape shape = check_pair(kName, in);
    s = {in[0].shape(), in[1].shape()};
    return broadcast(op, in[0], in[1], shape, in[0].dtype());
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    const Tensor wide_gy = wide(gy[0]);
    if (g[0].wanted()) g[0].set_rounded(sum_to_shape(wide_gy, s.a));
    if (!g[1].wanted()) return;
    const Tensor gb = sum_to_shape(wide_gy, s.b);
    g[1].set_rounded(op == kernels::PointwiseOp::add ? gb : negated(gb));
  }
};

struct Mul {
  static constexpr std::string_view kName = "mul";
  struct Saved {
    Tensor a, b;
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in) {
    const Shape shape = check_pair(kName, in);
    s = {keep(in[0]), keep(in[1])};
    return broadcast(kernels::PointwiseOp::mul, in[0], in[1], shape, in[0].dtype());
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    const auto gradient = [&](const Tensor& other, const Shape& shape) {
      const DType dtype = wide_dtype(other.dtype());
      return sum_to_shape(broadcast(kernels::PointwiseOp::mul, gy[0], other, gy[0].shape(), dtype), shape);
    };
    if (g[0].wanted()) g[0].set_rounded(gradient(s.b, s.a.shape()));
    if (g[1].wanted()) g[1].set_rounded(gradient(s.a, s.b.shape()));
  }
};

struct Times {
  static constexpr std::string_view kName = "times";
  struct Saved {
    float factor;
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in, float factor) {
    require_values(kName, "x", in[0]);
    require(std::isfinite(factor), kName, "factor: got ", factor, ", expected a finite number.");
    s.factor = factor;
    return narrowed(multiplied(widened(in[0]), factor), in[0].dtype());
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (g[0].wanted()) g[0].set_rounded(multiplied(wide(gy[0]), s.factor));
  }

 private:
  static Tensor multiplied(const Tensor& x, float factor) {
    const Tensor y = Tensor::empty(x.shape(), x.dtype());
    if (x.dtype() == dtypes::fp64)
      for (int64_t i = 0; i < x.numel(); ++i) y.as<double>()[i] = x.as<double>()[i] * static_cast<double>(factor);
    else
      kernels::scale(x.numel(), x.as<float>(), factor, y.as<float>());
    return y;
  }
};

struct Sum {
  static constexpr std::string_view kName = "sum";
  struct Saved {
    Shape shape;
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in) {
    require_float(kName, "x", in[0]);
    s.shape = in[0].shape();
    if (in[0].dtype() == dtypes::fp32) return total_of(in[0]);
    double total = 0;
    for (int64_t i = 0; i < in[0].numel(); ++i) total += in[0].as<double>()[i];
    return Tensor::scalar(total, dtypes::fp64);
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    const Tensor one = wide(gy[0]);
    if (one.dtype() == dtypes::fp64) return g[0].set_rounded(Tensor::full(s.shape, dtypes::fp64, one.item()));
    const Tensor gx = Tensor::empty(s.shape, dtypes::fp32);
    run_map(maps::FillFrom{one.as<float>(), gx.as<float>()}, gx.numel());
    g[0].set_rounded(gx);
  }
};

struct Reshape {
  static constexpr std::string_view kName = "reshape";
  struct Saved {
    Shape shape;
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in, const Shape& shape) {
    s.shape = in[0].shape();
    return in[0].reshape(shape);
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (g[0].wanted()) g[0].set_rounded(wide(gy[0]).reshape(s.shape));
  }
};

}  // namespace

Var add(const Var& a, const Var& b) { return apply<AddOrSub<kernels::PointwiseOp::add>>({a, b}); }
Var sub(const Var& a, const Var& b) { return apply<AddOrSub<kernels::PointwiseOp::sub>>({a, b}); }
Var mul(const Var& a, const Var& b) { return apply<Mul>({a, b}); }
Var times(const Var& x, float factor) { return apply<Times>({x}, factor); }
Var sum(const Var& x) { return apply<Sum>({x}); }
Var reshape(const Var& x, const Shape& shape) { return apply<Reshape>({x}, shape); }

}  // namespace bitgrad
