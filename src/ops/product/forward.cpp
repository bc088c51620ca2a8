#include "ops/product/forward.h"

#include <algorithm>
#include <vector>

#include "bitgrad/base/parallel.h"
#include "kernels/pack.h"

namespace bitgrad::detail {
namespace {

std::vector<Layout> layouts_of(const Tensor& w) {
  std::vector<Layout> layouts{w.layout()};
  for (const Tensor& t : w.attached_layouts()) layouts.push_back(t.layout());
  return layouts;
}

// x in the given layout: as stored, or packed for this product.
Tensor packed(const Tensor& x, Layout layout) {
  Tensor there = x.in_layout(layout);
  if (there.defined()) return there;
  there = Tensor::empty_layout(x.shape(), x.dtype(), layout, MemoryKind::kActivation);
  kernels::pack({x.dtype(), x.rows(), x.cols(), x.data(), x.stride(), layout, there.data()});
  return there;
}

}  // namespace

void forward_product(const Operand& x, const Tensor& w, const Tensor& bias, const Tensor& y, bool row_alone) {
  kernels::GemmArgs full =
      product_args(x.side(false), side_of(w, false), y.dtype(), bias.defined() ? bias.as<float>() : nullptr);
  full.row_alone = row_alone;
  const kernels::GemmKernel& kernel = kernels::plan_gemm(full, layouts_of(w));
  full.ldc = y.stride() * 8 / y.dtype().bits();
  full.b.data = w.in_layout(kernel.b_layout).data();
  full.b.layout = kernel.b_layout;
  const int64_t rows = x.row_count(), block = x.block_rows();
  const auto run = [&](int64_t begin, int64_t end) {
    Tensor workspace;
    const Tensor part = x.rows(begin, end, workspace), there = packed(part, kernel.a_layout);
    kernels::GemmArgs args = full;
    args.m = end - begin;
    args.a = side_of(part, false).gemm;
    args.a.data = there.data();
    args.a.layout = kernel.a_layout;
    args.c = static_cast<char*>(y.data()) + begin * y.stride();
    ensure(block >= rows || kernel.supports(args), "linear", kernel.name, " was planned for a product of ", rows,
           " rows, and does not support ", args.m, " of them");
    kernel.run(args);
  };
  if (block >= rows) return run(0, rows);
  parallel_for((rows + block - 1) / block, [&](int64_t i) { run(i * block, std::min((i + 1) * block, rows)); });
}

}  // namespace bitgrad::detail
