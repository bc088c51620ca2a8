// y = a + b and y = a * b, same shapes; sum of all elements; reshape.
#include "bitgrad/ops/ops.h"
#include "kernels/map/tensor_gradient.h"
#include "ops/common.h"

namespace bitgrad {
namespace {

// y[i] = f(a[i], b[i]) in fp64; fp32 goes to the kernels.
template <typename F>
Tensor pointwise(const Tensor& a, const Tensor& b, void (*kernel)(int64_t, const float*, const float*, float*), F f) {
  Tensor y = Tensor::empty(a.shape(), a.dtype());
  if (a.dtype() == dtypes::fp64)
    for (int64_t i = 0; i < a.numel(); ++i) y.as<double>()[i] = f(a.as<double>()[i], b.as<double>()[i]);
  else
    kernel(a.numel(), a.as<float>(), b.as<float>(), y.as<float>());
  return y;
}
Tensor product(const Tensor& a, const Tensor& b) {
  return pointwise(a, b, bitgrad::mul, [](double p, double q) { return p * q; });
}

void check_pair(std::string_view op, std::span<const Tensor> in) {
  require_float(op, "a", in[0]);
  require_float(op, "b", in[1]);
  require_same(op, in[0], in[1]);
}

struct Add {
  static constexpr std::string_view kName = "add";
  struct Saved {};
  static Tensor forward(Saved&, std::span<const Tensor> in) {
    check_pair(kName, in);
    return pointwise(in[0], in[1], bitgrad::add, [](double p, double q) { return p + q; });
  }
  static void backward(Saved&, std::span<const Tensor> gy, std::span<GradSlot> g) {
    const Tensor wide_gy = wide(gy[0]);
    for (GradSlot& slot : g)
      if (slot.wanted()) slot.set_rounded(wide_gy);
  }
};

struct Mul {
  static constexpr std::string_view kName = "mul";
  struct Saved {
    Tensor a, b;
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in) {
    check_pair(kName, in);
    s = {keep(in[0]), keep(in[1])};
    return product(in[0], in[1]);
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    const Tensor wide_gy = wide(gy[0]);
    if (g[0].wanted()) g[0].set_rounded(product(wide_gy, s.b));
    if (g[1].wanted()) g[1].set_rounded(product(wide_gy, s.a));
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

Var add(const Var& a, const Var& b) { return apply<Add>({a, b}); }
Var mul(const Var& a, const Var& b) { return apply<Mul>({a, b}); }
Var sum(const Var& x) { return apply<Sum>({x}); }
Var reshape(const Var& x, const Shape& shape) { return apply<Reshape>({x}, shape); }

}  // namespace bitgrad
