#include "bitgrad/kernels/device_kernels.h"
#include "bitgrad/ops/ops.h"
#include "kernels/map/ops_loss.h"
#include "ops/loss.h"

namespace bitgrad {
namespace {

constexpr std::string_view kCountCorrect = "count_correct";

// 1 where a row is right.
Tensor correct_rows(const Tensor& logits, const Labels& given) {
  if (logits.device() != current_device())
    fail_with(ErrorCode::kDevice, kCountCorrect, "logits (", logits, ") are on ", to_string(logits.device()),
              ", but the current device is ", to_string(current_device()), '.');
  const CheckedLabels labels(kCountCorrect, logits, given);
  require(logits.dtype() == dtypes::fp32, kCountCorrect, "logits must be fp32, got ", logits);
  const Tensor rows = Tensor::empty({logits.rows()}, dtypes::fp32, MemoryKind::kWorkspace);
  run_map(maps::CorrectRow{logits.as<float>(), labels.data(), logits.cols(), rows.as<float>(), labels.flags()},
          logits.rows(), rows_at_once(logits.cols()));
  labels.check(kCountCorrect, logits);
  return rows;
}

// Sums of at most kExact ones are exact in fp32.
int64_t count(const Tensor& rows) {
  constexpr int64_t kExact = 1 << 20;
  int64_t total = 0;
  for (int64_t r = 0; r < rows.numel(); r += kExact)
    total += static_cast<int64_t>(bitgrad::sum(rows.as<float>() + r, std::min(kExact, rows.numel() - r)));
  return total;
}

}  // namespace

int64_t count_correct(const Tensor& logits, std::span<const int32_t> labels) {
  return count(correct_rows(logits, {labels, {}}));
}
Tensor correct_count(const Tensor& logits, const Tensor& labels) {
  return total_of(correct_rows(logits, {{}, labels}));
}

}  // namespace bitgrad
