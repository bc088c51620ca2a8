// unary: the pointwise functions of unary.inc, y = f(x), gx = gy * f'(x). For bf16 x, y is bf16 too: f is computed in
// fp32 and rounded once.
//
// gated: y = f(gate) * up, with f from unary.inc (Shazeer 2020, arXiv 2002.05202): gate and up are two tensors, or the
// first and second half of the last axis of one tensor. Saved: only gate and up; f(gate) is recomputed in backward.
//   ggate = (gy * up) * f'(gate), gup = gy * f(gate)
// The fp32 bits are those of mul(unary(f, gate), up). For bf16, f(gate) stays in fp32.
#include "bitgrad/ops/unary.h"

#include "bitgrad/base/parallel.h"
#include "bitgrad/ops/ops.h"
#include "kernels/elementwise.h"
#include "kernels/map/map.h"
#include "ops/common.h"
#include "ops/strided.h"

namespace bitgrad {
namespace {

// y = f(x) in the dtype of x; y may be x. Returns y.
Tensor put_values(UnaryOp f, const Tensor& x, const Tensor& y) {
  kernels::unary_forward(f, x.numel(), {x.data(), x.dtype()}, {y.data(), y.dtype()});
  return y;
}

// gx = gy * f'(x), wide; gx may be gy.
void put_gradient(UnaryOp f, const Tensor& x, const Tensor& gy, const Tensor& gx) {
  kernels::unary_backward(f, gy.numel(), {x.data(), x.dtype()}, {gy.data(), gy.dtype()}, {gx.data(), gx.dtype()});
}

struct Unary {
  static constexpr std::string_view kName = "unary";
  struct Saved {
    Tensor x;
    UnaryOp op{};
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in, UnaryOp op) {
    const Tensor& x = in[0];
    require_values(unary_name(op), "x", x);
    Tensor y = Tensor::empty(x.shape(), x.dtype());
    s = {keep(x), op};
    return put_values(op, x, y);
  }
  static void backward(Saved& s, std::span<const Tensor> gy_edge, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    const Tensor gy = wide(gy_edge[0]);
    Tensor gx = Tensor::empty(gy.shape(), gy.dtype());
    put_gradient(s.op, s.x, gy, gx);
    g[0].set_rounded(gx);
  }
};

// A matrix [rows, cols] with a row stride of `step` elements.
struct Part {
  void* data;
  DType dtype;
  int64_t rows, cols, step;
};

Part part(const Tensor& x, int64_t cols, int64_t begin) {
  return {static_cast<char*>(x.data()) + begin * x.dtype().bits() / 8, x.dtype(), x.rows(), cols, x.cols()};
}
Part all(const Tensor& x) { return part(x, x.cols(), 0); }

template <typename Strided>
Strided strided(const Part& p) {
  return {p.data, p.dtype, {0, 0, p.step, 1}};
}

void multiply(const Part& a, const Part& b, const Part& y) {
  kernels::PointwiseArgs args;
  args.op = kernels::PointwiseOp::mul;
  args.size[2] = y.rows;
  args.size[3] = y.cols;
  args.a = strided<kernels::StridedInput>(a);
  args.b = strided<kernels::StridedInput>(b);
  args.y = strided<kernels::StridedOutput>(y);
  kernels::pointwise(args);
}

void copy(const Part& x, const Part& y) {
  kernels::StridedCopyArgs args;
  args.size[2] = y.rows;
  args.size[3] = y.cols;
  args.x = strided<kernels::StridedInput>(x);
  args.y = strided<kernels::StridedOutput>(y);
  kernels::strided_copy(args);
}

struct Gated {
  static constexpr std::string_view kName = "gated";
  struct Saved {
    Tensor x;  // gate and up
    UnaryOp f{};
  };

  static Tensor forward(Saved& s, std::span<const Tensor> in, UnaryOp f) {
    const Tensor& x = in[0];
    require_activation(kName, "x", x);
    require(x.shape().rank() > 0, kName, "needs an axis, got ", x);
    require(x.cols() % 2 == 0, kName, "x is gate and up side by side: the last axis must be even, got ", x);
    s = {keep(x), f};
    std::vector<int64_t> dims = x.shape().dims();
    dims.back() /= 2;
    Tensor y = Tensor::empty(Shape(std::move(dims)), x.dtype());
    if (x.dtype() == dtypes::fp32 && current_device().is_cpu()) {
      gate_rows(f, x.as<float>(), y.rows(), y.cols(), y.as<float>());
      return y;
    }
    const Tensor value = activated(f, x, y.cols(), y);
    multiply(all(value), part(x, y.cols(), y.cols()), all(y));
    return y;
  }

  // On the CPU, one row at a time, which stays near the core.
  static void gate_rows(UnaryOp f, const float* x, int64_t rows, int64_t cols, float* y) {
    parallel_ranges(rows, rows_per_task(cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const float* const gate = x + 2 * r * cols;
        float* const out = y + r * cols;
        kernels::unary_forward(f, cols, {gate, dtypes::fp32}, {out, dtypes::fp32});
        kernels::mul(cols, out, gate + cols, out);
      }
    });
  }

  // f of the gate: stored in `room` if that is wide, else in workspace memory.
  static Tensor activated(UnaryOp f, const Tensor& x, int64_t cols, const Tensor& room) {
    const Tensor value = wide_gate(x, cols, room);
    return put_values(f, value, value);
  }
  static Tensor wide_gate(const Tensor& x, int64_t cols, const Tensor& room) {
    const bool fits = room.defined() && room.dtype() != dtypes::bf16;
    const DType dtype = x.dtype() == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32;
    Tensor value = fits ? room : Tensor::empty({x.rows(), cols}, dtype, MemoryKind::kWorkspace);
    copy(part(x, cols, 0), all(value));
    return value;
  }

  static void backward(Saved& s, std::span<const Tensor> gy_edge, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    const Tensor gy = wide(gy_edge[0]);
    const int64_t cols = gy.cols();
    const Tensor gx = Tensor::empty(s.x.shape(), gy.dtype());
    const Tensor gate = wide_gate(s.x, cols, {});
    const Tensor product = Tensor::empty(gy.shape(), gy.dtype(), MemoryKind::kWorkspace);
    multiply(all(gy), part(s.x, cols, cols), all(product));
    put_gradient(s.f, gate, product, product);
    copy(all(product), part(gx, cols, 0));
    multiply(all(gy), all(put_values(s.f, gate, gate)), part(gx, cols, cols));
    g[0].set_rounded(gx);
  }
};

}  // namespace

Var unary(UnaryOp op, const Var& x) { return apply<Unary>({x}, op); }
Var gated(UnaryOp f, const Var& x) { return apply<Gated>({x}, f); }

}  // namespace bitgrad
