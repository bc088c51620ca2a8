#include "nn/integer_range.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "kernels/reduce.h"
#include "nn/map/first_batch.h"

namespace bitgrad::detail {
namespace {

Tensor numbers_of(int64_t count) { return Tensor::empty({count}, dtypes::fp32, MemoryKind::kWorkspace); }

}  // namespace

IntegerRange integer_range(const Tensor& x, bool per_row) {
  require(x.dtype() == dtypes::int32 && x.contiguous(), "range", "expected dense int32, got ", x);
  const int64_t rows = x.rows(), cols = x.cols();
  if (!per_row && x.numel() == 0)
    return {Tensor::zeros({1}, dtypes::fp32, MemoryKind::kWorkspace),
            Tensor::zeros({1}, dtypes::fp32, MemoryKind::kWorkspace)};
  IntegerRange of_rows{numbers_of(rows), numbers_of(rows)};
  run_map(
      maps::IntegerRowRanges{{cols, x.scale_map()}, x.as<int32_t>(), of_rows.low.as<float>(), of_rows.high.as<float>()},
      rows, std::max(int64_t{1}, kMapGrain / std::max(int64_t{1}, cols)));
  if (per_row) return of_rows;
  IntegerRange out{numbers_of(1), numbers_of(1)};
  kernels::ReduceArgs args;
  args.rows = 1;
  args.cols = args.ldx = rows;
  args.rule = kernels::ReduceRule::kMin;
  args.x = of_rows.low.as<float>();
  args.out = out.low.as<float>();
  kernels::reduce(args);
  args.rule = kernels::ReduceRule::kMax;
  args.x = of_rows.high.as<float>();
  args.out = out.high.as<float>();
  kernels::reduce(args);
  return out;
}

}  // namespace bitgrad::detail
