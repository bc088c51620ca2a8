// Which products are stored from fragments, and the arguments of these stores (store.h).
#include <algorithm>

#include "cuda/kernels/gemm/wgmma/plan.h"

namespace bitgrad::cuda::gemm {
namespace {

StoreSide side_of(const FreeParams& params, const int32_t* sum, int32_t times, int64_t count) {
  StoreSide side;
  side.scale = params.scale;
  side.step = static_cast<int32_t>(params.step);
  side.sum = sum;
  side.times = times;
  side.count = static_cast<int32_t>(count);
  return side;
}

// C must be overwritten, in rows that TMA can write, with sums whose corrections fit in int32. bits: the product
// corrects its sums, so its tables have no room for a bias. TMA writes whole pieces of 16 bytes, also past the bounds
// of its matrix: behind rows that end within one may lie something else.
bool allows(const WgmmaArgs& args, bool rows_are_weights, bool bits) {
  const Output& out = args.out;
  const int64_t size = out.form == OutputForm::kFp32 ? 4 : 2;
  const bool is_float = out.form == OutputForm::kFp32 || out.form == OutputForm::kBf16;
  return is_float && !(rows_are_weights && out.form == OutputForm::kFp32) && !out.accumulate && !out.stochastic &&
         !args.rule.wide && !(bits && out.bias != nullptr) && reinterpret_cast<uintptr_t>(out.c) % 16 == 0 &&
         out.ldc * size % 16 == 0 && out.n * size % 16 == 0 && std::max(out.n, out.ldc) * size <= INT32_MAX;
}

}  // namespace

bool stores_fragments(const GemmArgs& args, bool rows_are_weights) {
  return allows(common_args(args), rows_are_weights, args.a.dtype.bits() == 1);
}

WgmmaStore plan_store(const GemmArgs& args, bool rows_are_weights, WgmmaArgs& out) {
  if (!allows(out, rows_are_weights, args.a.dtype.bits() == 1)) return WgmmaStore::kGeneral;
  const SumRule& rule = out.rule;
  const int64_t size = out.out.form == OutputForm::kFp32 ? 4 : 2;
  StoreSide a = side_of(out.a, rule.sum_a, -rule.factor_a * rule.base_b, args.m);
  StoreSide b = side_of(out.b, rule.sum_b, -rule.factor_b * rule.base_a, args.n);
  a.base = static_cast<int32_t>(args.k) * rule.base_a * rule.base_b;
  b.bias = out.out.bias;
  out.store.factor = rule.factor_a * rule.factor_b;
  out.store.bias = b.bias != nullptr;
  out.store.rows = rows_are_weights ? b : a;
  out.store.columns = rows_are_weights ? a : b;
  out.store.c = make_tensor_map(args.c, args.n * size, args.m, out.out.ldc * size, kBoxRows);
  return out.out.form == OutputForm::kFp32 ? WgmmaStore::kFp32 : WgmmaStore::kBf16;
}

}  // namespace bitgrad::cuda::gemm
