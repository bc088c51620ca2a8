#include "kernels/gemm/common/strict_order.h"

#include "kernels/gemm/tables/table.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

// From these sizes on, sum tables are faster than the chain on every instruction set (docs/performance.md).
constexpr int64_t kLeastM = 8, kLeastN = 256;

}  // namespace

SumOrder strict_order(const GemmArgs& args) {
  if (gemm_is_integer(args)) return SumOrder::kExact;
  if (args.a.dtype == dtypes::fp64 || args.b.dtype == dtypes::fp64 || args.c_dtype == dtypes::fp64)
    return SumOrder::kFp64;
  // With row_alone, a row must have the order that it would have as the only row.
  const bool tables = !args.row_alone && args.m >= kLeastM && args.n >= kLeastN && table_f32_supports(args);
  return tables ? SumOrder::kTable : SumOrder::kChain512;
}

}  // namespace bitgrad::kernels::gemm_detail
