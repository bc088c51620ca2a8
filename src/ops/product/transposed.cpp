#include "ops/product/transposed.h"

#include <limits>
#include <utility>

#include "bitgrad/dtype/codec.h"
#include "bitgrad/kernels/gemm_costs.h"
#include "ops/common.h"
#include "ops/product/operand.h"

namespace bitgrad::detail {
namespace {

constexpr double kTransposeNs = 0.001;  // per element

ScaleMap transposed_scale(ScaleMap map) {
  std::swap(map.row_step, map.col_step);
  std::swap(map.row_group, map.col_group);
  return map;
}

Tensor transpose(kernels::GemmOperand& x, int64_t free, int64_t k) {
  const kernels::GemmOperand from = x;
  x = transposed_form(from, k);
  Tensor transposed = Tensor::empty({free * x.stride}, dtypes::uint8, MemoryKind::kWorkspace);
  transpose_on_device({from.dtype.bits(), k, free, from.data, from.stride, transposed.data(), x.stride});
  x.data = transposed.data();
  return transposed;
}

// How B is read: as stored, transposed for this product, or from the planned layout `transposed`.
enum class BOrder : uint8_t { kAsStored, kTransposed, kCached };

struct Orders {
  bool transpose_a = false;
  BOrder b = BOrder::kAsStored;
  double ns = std::numeric_limits<double>::infinity();
};

Orders cheapest(const kernels::GemmArgs& args, const kernels::GemmOperand* b_transposed) {
  Orders best;
  for (const bool a : {false, true})
    for (const BOrder b : {BOrder::kAsStored, BOrder::kTransposed, BOrder::kCached}) {
      if ((a && !can_transpose(args.a)) || (b == BOrder::kTransposed && !can_transpose(args.b))) continue;
      if (b == BOrder::kCached && b_transposed == nullptr) continue;
      kernels::GemmArgs form = args;
      double elements = 0;
      if (a) form.a = transposed_form(args.a, args.k), elements += static_cast<double>(args.m);
      if (b == BOrder::kTransposed) form.b = transposed_form(args.b, args.k), elements += static_cast<double>(args.n);
      if (b == BOrder::kCached) form.b = *b_transposed;
      const double ns =
          kernels::gemm_cost(kernels::select_gemm(form), form) + kTransposeNs * elements * static_cast<double>(args.k);
      if (ns < best.ns) best = {a, b, ns};
    }
  return best;
}

}  // namespace

bool can_transpose(const kernels::GemmOperand& x) {
  return x.k_major && x.layout == layouts::canonical && x.dtype.is_code();
}

kernels::GemmOperand transposed_form(const kernels::GemmOperand& x, int64_t k) {
  kernels::GemmOperand y = x;
  y.data = nullptr;
  y.k_major = false;
  y.stride = (row_bytes_memory(x.dtype, k) + 15) / 16 * 16;
  y.scale = transposed_scale(x.scale);
  return y;
}

kernels::GemmOperand from_transposed(const void* codes, DType dtype, int64_t k, const ScaleMap& scale) {
  kernels::GemmOperand x;
  x.data = codes;
  x.dtype = dtype;
  x.stride = row_bytes_memory(dtype, k);
  x.scale = transposed_scale(scale);
  return x;
}

void run_on_device(kernels::GemmArgs& args, const kernels::GemmOperand* b_transposed) {
  const Orders orders = cheapest(args, b_transposed);
  const Tensor a = orders.transpose_a ? transpose(args.a, args.m, args.k) : Tensor(),
               b = orders.b == BOrder::kTransposed ? transpose(args.b, args.n, args.k) : Tensor();
  if (orders.b == BOrder::kCached) args.b = *b_transposed;
  kernels::select_gemm(args).run(args);
}

bool prefers_transposed(DType b, int64_t m, int64_t n, int64_t k, bool a_k_major) {
  if (current_device().is_cpu() || !b.is_code() || !is_integer(b) || m == 0 || n == 0 || k == 0) return false;
  OperandForm gy, codes;
  gy.rows = a_k_major ? k : m;
  gy.cols = a_k_major ? m : k;
  gy.dtype = dtypes::int8;
  gy.scales = a_k_major ? Granularity::channel(1) : Granularity::token();
  codes.rows = k;
  codes.cols = n;
  codes.dtype = b;
  const kernels::GemmArgs args = product_args(side_of(gy, a_k_major), side_of(codes, true));
  const kernels::GemmOperand there = from_transposed(nullptr, b, k, {});
  return cheapest(args, &there).b == BOrder::kCached;
}

}  // namespace bitgrad::detail
