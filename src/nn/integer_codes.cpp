// Codes of single elements of integer graphs. docs/numerics.md section 4, "The integer scheme".
#include <algorithm>

#include "bitgrad/nn/inference.h"

namespace bitgrad::inference {
namespace {

template <typename Op>
int32_t clamped(const Op& op, int64_t code) {
  return static_cast<int32_t>(std::clamp<int64_t>(code + op.zero, op.lo, op.hi));
}

// Channel `feature` of one value for all, or one each.
template <typename T>
const T& of(const std::vector<T>& values, int64_t feature) {
  return values.size() == 1 ? values[0] : values[static_cast<size_t>(feature)];
}

}  // namespace

int32_t code_of(const Requantize& op, int32_t sum, int64_t feature) {
  const int32_t acc = sum - op.zero_in;
  return clamped(op, op.rule == OutputRounding::kFloat ? requantize_float(acc, of(op.factor, feature))
                                                       : requantize(acc, of(op.multiplier, feature), op.rule));
}

int32_t code_of(const IntegerAdd& op, int32_t a, int32_t b) {
  const int32_t x[] = {a - op.zero_in[0], b - op.zero_in[1]};
  if (op.rule == OutputRounding::kFloat) {
    const int64_t sum = static_cast<int64_t>(x[0]) * op.factor[0] + static_cast<int64_t>(x[1]) * op.factor[1];
    return clamped(op, (sum + (int64_t{1} << (op.shift - 1))) >> op.shift);
  }
  int32_t sum = 0;
  for (size_t i = 0; i < 2; ++i) sum += requantize(x[i] * (1 << IntegerAdd::kLeft), op.in[i], op.rule);
  return clamped(op, requantize(sum, op.out, op.rule));
}

int32_t code_of(const IntegerMultiply& op, int32_t a, int32_t b) {
  const int32_t acc = (a - op.zero_in[0]) * (b - op.zero_in[1]);
  return clamped(op, op.rule == OutputRounding::kFloat ? requantize_float(acc, op.factor)
                                                       : requantize(acc, op.multiplier, op.rule));
}

int32_t code_of(const IntegerAvgPool& op, int32_t sum, int32_t count) {
  const int32_t mean = sum > 0 ? (sum + count / 2) / count : (sum - count / 2) / count;
  return static_cast<int32_t>(std::clamp<int64_t>(mean, op.lo, op.hi));
}

}  // namespace bitgrad::inference
