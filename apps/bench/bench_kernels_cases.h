// The cases of bench_kernels: kernels that move much data and compute little.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bitgrad/base/rng.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad::bench {

struct Case {
  std::string family, what, dtype, layout;
  double bytes = 0;                                 // that a call must read and write, each operand counted once
  std::function<std::function<void()>()> operands;  // makes a call with its own operands
  std::string kernel{};                             // empty: every device has exactly one
};

// A [rows, cols] matrix of random numbers in (-1, 1) on the current device.
class Numbers {
 public:
  Numbers(int64_t rows, int64_t cols);
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  double count() const { return static_cast<double>(rows_) * static_cast<double>(cols_); }
  // A copy of the values in their own memory.
  Tensor copy() const { return numbers_.clone(MemoryKind::kWorkspace); }
  // Uninitialized memory for as many values of another dtype.
  Tensor room(DType dtype) const { return Tensor::empty({rows_, cols_}, dtype, MemoryKind::kWorkspace); }
  // fp32 [cols], filled with `number`; column_of: fp32 [rows].
  Tensor row_of(double number) const { return Tensor::full({cols_}, dtypes::fp32, number); }
  Tensor column_of(double number) const { return Tensor::full({rows_}, dtypes::fp32, number); }
  // Random draws for stochastic rounding.
  const RandomStream* draws() const;

 private:
  int64_t rows_, cols_;
  Tensor numbers_;
};

// A case of fp32 operands that `make`, given the numbers, turns into a call.
template <typename Make>
Case float_case(const Numbers& numbers, const char* family, std::string what, double bytes_a_number, Make make) {
  return {family,
          std::move(what),
          "fp32",
          "",
          bytes_a_number * numbers.count(),
          [n = &numbers, make]() -> std::function<void()> { return make(*n); }};
}

// Codes of one dtype: packing into every layout that the current device supports (the CPU: and back), all forms of
// quantization, dequantization, dropout. each_kernel: a case for every usable kernel, not only for the selected one.
std::vector<Case> code_cases(const Numbers& numbers, DType dtype, bool each_kernel);
// fp32 in and out: elementwise functions, norms, reductions; conversions to and from bf16.
std::vector<Case> number_cases(const Numbers& numbers);
// fp32 in and out: functions and copies of strided arrays, and row-wise kernels.
std::vector<Case> row_cases(const Numbers& numbers);
// Optimizer updates, and moments in 8 and 4 bits.
std::vector<Case> update_cases(const Numbers& numbers);
// A whole AdamW step of one parameter of this dtype: the update, new codes and their layouts.
std::vector<Case> step_cases(const Numbers& numbers, DType dtype);

}  // namespace bitgrad::bench
