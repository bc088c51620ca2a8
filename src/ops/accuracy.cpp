#include "bitgrad/ops/ops.h"
#include "ops/loss.h"

namespace bitgrad {

int64_t count_correct(const Tensor& logits, std::span<const int32_t> labels) {
  check_logits("count_correct", logits, labels);
  require(logits.dtype() == dtypes::fp32, "count_correct", "logits must be fp32, got ", logits);
  int64_t correct = 0;
  for (int64_t r = 0; r < logits.rows(); ++r) {
    const float* row = logits.as<float>() + r * logits.cols();
    int64_t best = 0;
    for (int64_t c = 1; c < logits.cols(); ++c)
      if (row[c] > row[best]) best = c;
    correct += best == labels[static_cast<size_t>(r)];
  }
  return correct;
}

}  // namespace bitgrad
