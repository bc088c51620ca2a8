// y[n,o] = sum_i x[n,i] * w[o,i] (+ bias[o]);  gx = gy W;  gW = gy^T X;  gbias = column sums of gy. docs/numerics.md
// sections 4 and 5.
//
// Both backward products read the saved codes in canonical order; no float copy of an operand is made.
#include "bitgrad/kernels/gemm.h"
#include "bitgrad/kernels/pack.h"
#include "bitgrad/kernels/reduce.h"
#include "bitgrad/ops/ops.h"
#include "ops/common.h"

namespace bitgrad {
namespace {

GemmOperand operand(const Tensor& t, bool k_major) {
  GemmOperand o;
  o.data = t.data();
  o.dtype = t.dtype();
  o.layout = t.layout();
  o.stride = t.stride();
  o.k_major = k_major;
  o.scale = t.scale_map();
  return o;
}

// The scale of a contracted index is folded into the other operand: one scale for all, or one per stored row; no zero
// point.
bool folds(const Tensor& t) {
  const ScaleMap s = t.scale_map();
  return s.scale != nullptr && s.zero == nullptr && s.offset == nullptr && (s.per_tensor() || s.per_row());
}

struct Linear {
  static constexpr std::string_view kName = "linear";
  struct Saved {
    Tensor x, w;
    bool bias = false;
  };

  static Tensor forward(Saved& s, std::span<const Tensor> in) {
    const Tensor &x = in[0], &w = in[1];
    require(x.shape().rank() == 2 && w.shape().rank() == 2, kName, "x and w must be matrices: got x ", x, ", w ", w);
    require(x.cols() == w.cols(), kName, "x has ", x.cols(), " features, w expects ", w.cols(), " (x ", x, ", w ", w,
            ")");
    const bool f64 = x.dtype() == dtypes::fp64;
    require(f64 == (w.dtype() == dtypes::fp64), kName, "x and w must both be fp64, or neither: got x ", x, ", w ", w);
    Tensor bias;
    if (in.size() > 2) {
      bias = in[2];
      require(bias.shape() == Shape{w.rows()} && bias.dtype() == (f64 ? dtypes::fp64 : dtypes::fp32), kName,
              "bias must be [", w.rows(), "] ", f64 ? "fp64" : "fp32", ", got ", bias);
    }
    Tensor y = Tensor::empty({x.rows(), w.rows()}, f64 ? dtypes::fp64 : dtypes::fp32);
    product(x, w, f64 ? Tensor() : bias, y);
    if (f64 && bias.defined())
      for (int64_t r = 0; r < y.rows(); ++r)
        for (int64_t c = 0; c < y.cols(); ++c) y.as<double>()[r * y.cols() + c] += bias.as<double>()[c];
    s = {keep(x), keep(w), bias.defined()};
    return y;
  }

  // y = x w^T by the best row among the layouts that w has; x is packed into the layout that the row wants.
  static void product(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y) {
    GemmArgs args;
    args.m = x.rows();
    args.n = w.rows();
    args.k = x.cols();
    args.a = operand(x, false);
    args.b = operand(w, false);
    args.c = y.data();
    args.c_dtype = y.dtype();
    args.ldc = y.cols();
    args.bias = bias.defined() ? bias.as<float>() : nullptr;
    std::vector<Layout> w_layouts{w.layout()};
    for (const Tensor& t : w.attached_layouts()) w_layouts.push_back(t.layout());
    const GemmRow& best = plan_gemm(args, w_layouts);
    Tensor x_there = x.in_layout(best.a_layout);
    if (!x_there.defined()) {
      x_there = Tensor::empty_layout(x.shape(), x.dtype(), best.a_layout, MemoryKind::kActivation);
      pack({x.dtype(), x.rows(), x.cols(), x.data(), x.stride(), best.a_layout, x_there.data()});
    }
    args.a.data = x_there.data();
    args.a.layout = best.a_layout;
    args.b.data = w.in_layout(best.b_layout).data();
    args.b.layout = best.b_layout;
    best.run(args);
  }

  static void backward(Saved& s, std::span<const Tensor> gy_edge, std::span<GradSlot> g) {
    const Tensor& gy = gy_edge[0];
    if (g[0].wanted()) {
      GemmArgs args;
      args.m = gy.rows();
      args.n = s.w.cols();
      args.k = gy.cols();
      args.a = operand(gy, false);
      args.b = operand(s.w, true);
      args.fold_b_scale = folds(s.w);
      write(args, g[0]);
    }
    if (g[1].wanted()) {
      GemmArgs args;
      args.m = gy.cols();
      args.n = s.x.cols();
      args.k = gy.rows();
      args.a = operand(gy, true);
      args.b = operand(s.x, true);
      args.fold_b_scale = folds(s.x);
      write(args, g[1]);
    }
    if (s.bias && g[2].wanted()) g[2].set_rounded(column_sums(wide(gy)));
  }

  // The product goes straight to where the gradient lives.
  static void write(GemmArgs& args, GradSlot& slot) {
    const GradTarget target = slot.target();
    args.c = target.out.data();
    args.c_dtype = target.out.dtype();
    args.ldc = target.out.cols();
    args.accumulate = target.accumulate;
    args.sr = target.sr;
    gemm(args);
    slot.commit();
  }

  static Tensor column_sums(const Tensor& g) {
    Tensor out = Tensor::zeros({g.cols()}, g.dtype());
    if (g.dtype() == dtypes::fp64) {
      for (int64_t r = 0; r < g.rows(); ++r)
        for (int64_t c = 0; c < g.cols(); ++c) out.as<double>()[c] += g.as<double>()[r * g.cols() + c];
      return out;
    }
    ReduceArgs args;
    args.axis = ReduceAxis::kColumns;
    args.rows = g.rows();
    args.cols = g.cols();
    args.x = g.as<float>();
    args.ldx = g.cols();
    args.out = out.as<float>();
    reduce(args);
    return out;
  }
};

}  // namespace

Var linear(const Var& x, const Var& w, const Var& bias) {
  return bias.defined() ? apply<Linear>({x, w, bias}) : apply<Linear>({x, w});
}

}  // namespace bitgrad
