// Codes of single elements of integer graphs, of operations with a number for each channel or a window
// (nn/integer_ops.h has the others). docs/numerics.md section 4, "The integer scheme".
#include "bitgrad/nn/inference.h"

namespace bitgrad::inference {
namespace {

// Channel `feature` of one value for all, or one each.
template <typename T>
T of(const std::vector<T>& values, int64_t feature) {
  return values.empty() ? T{} : values.size() == 1 ? values[0] : values[static_cast<size_t>(feature)];
}

}  // namespace

int32_t code_of(const Requantize& op, int32_t sum, int64_t feature) {
  const int32_t r = scaled_sum(op.rule, sum - op.zero_in, of(op.multiplier, feature), of(op.factor, feature));
  return bounded_code(int64_t{r} + op.zero, op.lo, op.hi);
}

int32_t code_of(const IntegerAvgPool& op, int32_t sum, int32_t count) { return mean_code(sum, count, op.lo, op.hi); }

}  // namespace bitgrad::inference
