// What single codes become in integer graphs (nn/integer_graph.h), on the CPU and on devices. Formulas:
// docs/numerics.md section 4, "The integer scheme".
#pragma once

#include <array>
#include <cstdint>

#include "bitgrad/base/device.h"
#include "bitgrad/quant/fixed_point.h"

namespace bitgrad::inference {

// The sum of two inputs. kFloat: (sum of factor_i * (x_i - zero_in_i) + 2^(shift-1)) >> shift. Other rules: each (x_i -
// zero_in_i) * 2^20 is requantized by in_i, and the sum of both by out.
struct IntegerAdd {
  static constexpr int kLeft = 20;
  OutputRounding rule = OutputRounding::kDouble;
  std::array<int32_t, 2> zero_in{0, 0};
  std::array<FixedPoint, 2> in{};
  FixedPoint out = {};
  std::array<int32_t, 2> factor{0, 0};
  int32_t shift = 0;
  int32_t zero = 0;
  int64_t lo = 0, hi = 0;
};
// The product of two inputs: (x_0 - zero_in_0) * (x_1 - zero_in_1), requantized.
struct IntegerMultiply {
  OutputRounding rule = OutputRounding::kDouble;
  std::array<int32_t, 2> zero_in{0, 0};
  FixedPoint multiplier = {};
  float factor = 0;  // of rule kFloat
  int32_t zero = 0;
  int64_t lo = 0, hi = 0;
};

// A sum times its multiplier, or of kFloat its factor.
BITGRAD_HD inline int32_t scaled_sum(OutputRounding rule, int32_t acc, FixedPoint multiplier, float factor) {
  return rule == OutputRounding::kFloat ? requantize_float(acc, factor) : requantize(acc, multiplier, rule);
}
BITGRAD_HD inline int32_t bounded_code(int64_t code, int64_t lo, int64_t hi) {
  return static_cast<int32_t>(code < lo ? lo : code > hi ? hi : code);
}

// The code of one element.
BITGRAD_HD inline int32_t code_of(const IntegerAdd& op, int32_t a, int32_t b) {
  const int32_t x[] = {a - op.zero_in[0], b - op.zero_in[1]};
  int64_t r = 0;
  if (op.rule == OutputRounding::kFloat) {
    const int64_t sum = static_cast<int64_t>(x[0]) * op.factor[0] + static_cast<int64_t>(x[1]) * op.factor[1];
    r = (sum + (int64_t{1} << (op.shift - 1))) >> op.shift;
  } else {
    int32_t sum = 0;
    for (size_t i = 0; i < 2; ++i) sum += requantize(x[i] * (1 << IntegerAdd::kLeft), op.in[i], op.rule);
    r = requantize(sum, op.out, op.rule);
  }
  return bounded_code(r + op.zero, op.lo, op.hi);
}
BITGRAD_HD inline int32_t code_of(const IntegerMultiply& op, int32_t a, int32_t b) {
  const int32_t acc = (a - op.zero_in[0]) * (b - op.zero_in[1]);
  return bounded_code(int64_t{scaled_sum(op.rule, acc, op.multiplier, op.factor)} + op.zero, op.lo, op.hi);
}
// The mean of `count` codes with this sum.
BITGRAD_HD inline int32_t mean_code(int32_t sum, int32_t count, int64_t lo, int64_t hi) {
  return bounded_code(sum > 0 ? (sum + count / 2) / count : (sum - count / 2) / count, lo, hi);
}

}  // namespace bitgrad::inference
