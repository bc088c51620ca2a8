// What bench_bandwidth measures: kernels that read and write much and compute little.
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
  double bytes = 0;                                 // that a call must read and write: every operand once
  std::function<std::function<void()>()> operands;  // a call with operands of its own
};

// A [rows, cols] matrix of random numbers in (-1, 1) on the current device.
class Numbers {
 public:
  Numbers(int64_t rows, int64_t cols);
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  double count() const { return static_cast<double>(rows_) * static_cast<double>(cols_); }
  // The numbers, as memory of their own.
  Tensor copy() const { return numbers_.clone(MemoryKind::kWorkspace); }
  // Memory for so many numbers of another dtype, uninitialised.
  Tensor room(DType dtype) const { return Tensor::empty({rows_, cols_}, dtype, MemoryKind::kWorkspace); }
  // fp32 memory that holds `number` everywhere.
  Tensor row_of(double number) const { return Tensor::full({cols_}, dtypes::fp32, number); }
  Tensor column_of(double number) const { return Tensor::full({rows_}, dtypes::fp32, number); }
  // Draws for kernels that round by them.
  const RandomStream* draws() const;

 private:
  int64_t rows_, cols_;
  Tensor numbers_;
};

// Codes of one dtype: pack into every layout that the current device makes, quantize in its forms, dequantize.
std::vector<Case> code_cases(const Numbers& numbers, DType dtype);
// fp32 in and out: elementwise, norms, reductions, bf16.
std::vector<Case> number_cases(const Numbers& numbers);
// fp32 in and out: strided functions and copies, and what runs over rows.
std::vector<Case> row_cases(const Numbers& numbers);
// Updates of optimizers, and 8-bit moments.
std::vector<Case> update_cases(const Numbers& numbers);
// A whole step of AdamW on one parameter of that dtype: update, new codes and their layouts.
std::vector<Case> step_cases(const Numbers& numbers, DType dtype);

}  // namespace bitgrad::bench
