// Counts and sums from which metrics are computed: exact integers, and doubles added in a fixed order (docs/numerics.md
// section 10).
#include "kernels/rowwise.h"
#include "ops/loss.h"
#include "ops/map/totals.h"
#include "ops/strided.h"

namespace bitgrad {
namespace {

void require_not_fp64(std::string_view op, const Tensor& x) {
  require(x.dtype() != dtypes::fp64, op, "needs fp32 or bf16, got ", x);
}

}  // namespace

Tensor target_count(const Tensor& targets, int32_t ignore_index) {
  constexpr std::string_view kTargetCount = "target_count";
  require(targets.defined() && targets.dtype() == dtypes::int32 && targets.contiguous() && !targets.quant(),
          kTargetCount, "targets must be dense int32, got ", targets);
  require_here(kTargetCount, "targets", targets);
  return count_targets(targets, ignore_index);
}

Tensor top_k_count(const Tensor& logits, const Tensor& targets, int64_t k, int32_t ignore_index) {
  constexpr std::string_view kTopKCount = "top_k_count";
  require_here(kTopKCount, "logits", logits);
  const ClassTargets checked(kTopKCount, logits, targets, ignore_index);
  require_not_fp64(kTopKCount, logits);
  require(k >= 1 && k < kernels::kNoRank, kTopKCount, "k is ", k, ", expected at least 1");
  const Tensor ranks = Tensor::empty({logits.rows()}, dtypes::int32, MemoryKind::kWorkspace);
  kernels::target_ranks({logits.rows(),
                         logits.cols(),
                         {logits.data(), logits.dtype()},
                         targets.as<int32_t>(),
                         ignore_index,
                         ranks.as<int32_t>(),
                         checked.flags()});
  checked.check(kTopKCount);
  return total_of_pieces(dtypes::int64, ranks.numel(), [&](void* out, int64_t pieces) {
    run_map(maps::CountRanks{ranks.as<int32_t>(), ranks.numel(), k, static_cast<int64_t*>(out)}, pieces,
            rows_per_task(maps::kTotalPiece));
  });
}

int64_t count_correct(const Tensor& logits, std::span<const int32_t> labels) {
  constexpr std::string_view kCountCorrect = "count_correct";
  require_here(kCountCorrect, "logits", logits);
  require(logits.dtype() == dtypes::fp32, kCountCorrect, "logits must be fp32, got ", logits);
  const Tensor classes = labels_of(kCountCorrect, logits, labels);
  require(logits.shape().rank() >= 2 && classes.numel() == logits.rows(), kCountCorrect, "logits ", logits, " have ",
          logits.rows(), " rows, got ", classes.numel(), " labels");
  return static_cast<int64_t>(top_k_count(logits.reshape({logits.rows(), logits.cols()}), classes, 1).item());
}

Tensor squared_error_total(const Tensor& outputs, const Tensor& target) {
  constexpr std::string_view kSquaredErrorTotal = "squared_error_total";
  require_here(kSquaredErrorTotal, "outputs", outputs);
  require_targets_like(kSquaredErrorTotal, outputs, target);
  require_not_fp64(kSquaredErrorTotal, outputs);
  const int64_t n = outputs.numel();
  return total_of_pieces(dtypes::fp64, n, [&](void* out, int64_t pieces) {
    run_map(maps::SumSquaredErrors{outputs.data(), target.data(), outputs.dtype() == dtypes::bf16,
                                   target.dtype() == dtypes::bf16, n, static_cast<double*>(out)},
            pieces, rows_per_task(maps::kTotalPiece));
  });
}

}  // namespace bitgrad
