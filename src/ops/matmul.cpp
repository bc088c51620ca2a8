// y[.., m, n] = sum_k a[.., m, k] * b[.., k, n], or with b[.., n, k] if transposed_b: one product per index of the
// leading axes, as a batch of family gemm. docs/numerics.md section 4.
//   ga = gy b^T;  gb = a^T gy, or gy^T a with transposed_b. A matrix b that all members share gives a single product
//   over all rows of a, and its gradient a single sum over all of them.
#include "bitgrad/ops/ops.h"
#include "ops/common.h"
#include "ops/product/blocks.h"
#include "ops/product/gradient.h"

namespace bitgrad {
namespace {

constexpr std::string_view kMatmul = "matmul";

// Stored rows per member of a, of b and of gy, and the number of members.
struct Extents {
  int64_t count = 1, a_rows = 0, b_rows = 0;
};

void check_factor(std::string_view name, const Tensor& t) {
  require(t.shape().rank() >= 2, kMatmul, name, ": got ", t, ", expected at least 2 axes");
  require(t.dtype().is_float() || t.dtype().is_code(), kMatmul, name, ": got ", t,
          ", expected floats or codes of at most 8 bits. For products of wider integers use out_dtype.");
  require(t.layout() == layouts::canonical, kMatmul, name, ' ', t, " is in layout ", t.layout(),
          ", expected canonical");
}

int64_t leading(const Shape& shape) {
  int64_t count = 1;
  for (int64_t i = 0; i + 2 < shape.rank(); ++i) count *= shape[i];
  return count;
}

Extents extents_of(const Tensor& a, const Tensor& b, bool transposed_b) {
  check_factor("a", a);
  check_factor("b", b);
  const Shape &sa = a.shape(), &sb = b.shape();
  const int64_t b_k = transposed_b ? sb[-1] : sb[-2];
  require(sa[-1] == b_k, kMatmul, "a has ", sa[-1], " columns, b has ", b_k, transposed_b ? " columns" : " rows",
          " (a ", a, ", b ", b, "). ", transposed_b ? "b [.., k, n] goes without" : "For b [.., n, k] set",
          " transposed_b.");
  const bool f64 = a.dtype() == dtypes::fp64;
  require(f64 == (b.dtype() == dtypes::fp64), kMatmul, "a and b must both be fp64, or neither: got a ", a, ", b ", b);
  if (sb.rank() == 2) return {1, a.rows(), sb[0]};
  bool equal = sa.rank() == sb.rank();
  for (int64_t i = 0; equal && i + 2 < sa.rank(); ++i) equal = sa[i] == sb[i];
  require(equal, kMatmul, "leading axes differ: got a ", a, ", b ", b,
          ", expected equal ones, or a matrix b that all of a is multiplied with. Reshape them.");
  return {leading(sa), sa[-2], sb[-2]};
}

struct Matmul {
  static constexpr std::string_view kName = kMatmul;
  struct Saved {
    Tensor a, b;
    Extents extents;
    bool transposed_b = false;
  };

  static Tensor forward(Saved& s, std::span<const Tensor> in, const MatmulOptions& options) {
    const Tensor &a = in[0], &b = in[1];
    const Extents e = extents_of(a, b, options.transposed_b);
    std::vector<int64_t> dims = a.shape().dims();
    dims.back() = options.transposed_b ? b.shape()[-2] : b.cols();
    Tensor y = Tensor::empty(Shape(dims), a.dtype() == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32);
    kernels::GemmArgs args = detail::batch_args(
        e.count, detail::members_of(kMatmul, a, e.a_rows, false),
        detail::members_of(kMatmul, b, e.b_rows, /*contracted_rows=*/!options.transposed_b), y.dtype());
    args.c = y.data();
    detail::run_product(args);
    s = {keep(a), keep(b), e, options.transposed_b};
    return y;
  }

  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    const Extents& e = s.extents;
    if (g[0].wanted()) {
      kernels::GemmArgs args = detail::batch_args(
          e.count, detail::members_of(kMatmul, gy[0], e.a_rows, false),
          detail::members_of(kMatmul, s.b, e.b_rows, /*contracted_rows=*/s.transposed_b), g[0].dtype());
      args.fold_b_scale = detail::folds(args.b.scale);
      detail::product_into(args, g[0]);
    }
    if (!g[1].wanted()) return;
    const detail::Members a = detail::members_of(kMatmul, s.a, e.a_rows, true),
                          grad = detail::members_of(kMatmul, gy[0], e.a_rows, true);
    kernels::GemmArgs args =
        detail::batch_args(e.count, s.transposed_b ? grad : a, s.transposed_b ? a : grad, g[1].dtype());
    args.fold_b_scale = detail::folds(args.b.scale);
    detail::product_into(args, g[1]);
  }
};

}  // namespace

Var matmul(const Var& a, const Var& b, const MatmulOptions& options) { return apply<Matmul>({a, b}, options); }

}  // namespace bitgrad
