#include "ops/product/order.h"

#include <limits>
#include <utility>

#include "bitgrad/dtype/codec.h"
#include "bitgrad/dtype/transpose.h"
#include "bitgrad/kernels/gemm_costs.h"
#include "ops/common.h"
#include "ops/product/operand.h"

namespace bitgrad::detail {
namespace {

constexpr double kTurnNs = 0.001;  // an element

ScaleMap turned_scale(ScaleMap map) {
  std::swap(map.row_step, map.col_step);
  std::swap(map.row_group, map.col_group);
  return map;
}

Tensor turn(GemmOperand& x, int64_t free, int64_t k) {
  const GemmOperand from = x;
  x = turned_form(from, k);
  const Tensor turned = Tensor::empty({free * x.stride}, dtypes::uint8, MemoryKind::kWorkspace);
  transpose_on_device({from.dtype.bits(), k, free, from.data, from.stride, turned.data(), x.stride});
  x.data = turned.data();
  return turned;
}

// How B is read: as it lies, turned for this product, or from codes that are there in the other order.
enum class BOrder : uint8_t { kLying, kTurned, kThere };

struct Orders {
  bool turn_a = false;
  BOrder b = BOrder::kLying;
  double ns = std::numeric_limits<double>::infinity();
};

Orders cheapest(const GemmArgs& args, const GemmOperand* b_turned) {
  Orders best;
  for (const bool a : {false, true})
    for (const BOrder b : {BOrder::kLying, BOrder::kTurned, BOrder::kThere}) {
      if ((a && !can_turn(args.a)) || (b == BOrder::kTurned && !can_turn(args.b))) continue;
      if (b == BOrder::kThere && b_turned == nullptr) continue;
      GemmArgs form = args;
      double elements = 0;
      if (a) form.a = turned_form(args.a, args.k), elements += static_cast<double>(args.m);
      if (b == BOrder::kTurned) form.b = turned_form(args.b, args.k), elements += static_cast<double>(args.n);
      if (b == BOrder::kThere) form.b = *b_turned;
      const double ns = gemm_cost(select_gemm(form), form) + kTurnNs * elements * static_cast<double>(args.k);
      if (ns < best.ns) best = {a, b, ns};
    }
  return best;
}

}  // namespace

bool can_turn(const GemmOperand& x) { return x.k_major && x.layout == layouts::canonical && x.dtype.is_code(); }

GemmOperand turned_form(const GemmOperand& x, int64_t k) {
  GemmOperand y = x;
  y.data = nullptr;
  y.k_major = false;
  y.stride = (row_bytes_memory(x.dtype, k) + 15) / 16 * 16;
  y.scale = turned_scale(x.scale);
  return y;
}

GemmOperand from_transposed(const void* codes, DType dtype, int64_t k, const ScaleMap& scale) {
  GemmOperand x;
  x.data = codes;
  x.dtype = dtype;
  x.stride = row_bytes_memory(dtype, k);
  x.scale = turned_scale(scale);
  return x;
}

void run_on_device(GemmArgs& args, const GemmOperand* b_turned) {
  const Orders orders = cheapest(args, b_turned);
  const Tensor a = orders.turn_a ? turn(args.a, args.m, args.k) : Tensor(),
               b = orders.b == BOrder::kTurned ? turn(args.b, args.n, args.k) : Tensor();
  if (orders.b == BOrder::kThere) args.b = *b_turned;
  select_gemm(args).run(args);
}

bool prefers_turned(DType b, int64_t m, int64_t n, int64_t k, bool a_k_major) {
  if (current_device().is_cpu() || !b.is_code() || !is_integer(b) || m == 0 || n == 0 || k == 0) return false;
  OperandForm gy, codes;
  gy.rows = a_k_major ? k : m;
  gy.cols = a_k_major ? m : k;
  gy.dtype = dtypes::int8;
  gy.scales = a_k_major ? Granularity::channel(1) : Granularity::token();
  codes.rows = k;
  codes.cols = n;
  codes.dtype = b;
  const GemmArgs args = product_args(side_of(gy, a_k_major), side_of(codes, true));
  const GemmOperand there = from_transposed(nullptr, b, k, {});
  return cheapest(args, &there).b == BOrder::kThere;
}

}  // namespace bitgrad::detail
