// Shared by ops: checks, gradients widened for computing, masks and sums.
#pragma once

#include <atomic>
#include <string_view>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/kernels/gemm.h"
#include "bitgrad/ops/product.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// A gradient in its edge's dtype as numbers to compute with: bf16 becomes fp32, fp32 and fp64 stay. Dense.
Tensor wide(const Tensor& gradient);
// x as values to compute with, dense: bf16 becomes fp32 in workspace memory, fp32 and fp64 are x itself.
Tensor widened(const Tensor& x);
// Memory for the values of a result in `dtype`, before narrowed: of bf16 fp32 in workspace memory.
Tensor wide_result(const Shape& shape, DType dtype);
// The result in `dtype`: of bf16 `values` (fp32, dense) rounded to nearest even, else `values` itself.
Tensor narrowed(const Tensor& values, DType dtype);
// Throws Error unless a result of fp32 values can have this dtype: fp32 or bf16.
void require_result(std::string_view op, DType dtype);
// fp32 or fp64, canonical, dense, without scales; else Error.
void require_float(std::string_view op, std::string_view what, const Tensor& x);
// The same, or bf16.
void require_values(std::string_view op, std::string_view what, const Tensor& x);
void require_same(std::string_view op, const Tensor& a, const Tensor& b);

// Error(kDevice) that names both unless x is on the current device: for functions that no tape checks.
void require_here(std::string_view op, std::string_view what, const Tensor& x);

// Largest absolute number of an integer dtype, as a double.
double magnitude(DType dtype);

// A tensor as an operand of family gemm, with its scales. k_major: stored [k, free].
kernels::GemmOperand gemm_operand(const Tensor& t, bool k_major);
// The product goes straight to where the gradient lives.
void gemm_into(kernels::GemmArgs& args, GradSlot& slot);

// Tells who takes rows of this gradient that the current device, which is not the CPU, makes none.
void decline_rows_on_device(const GradSlot& slot);
// Sum of all elements of x (fp32, dense) in the order of docs/numerics.md section 8, fp32 [].
Tensor total_of(const Tensor& x);
// Rows of a map over rows of `cols` elements that are one piece of work on the CPU.
int64_t rows_per_task(int64_t cols);
// Sums of the columns of g[n,o], fp32 or fp64.
Tensor column_sums(const Tensor& g);
// out = g (fp32, dense) where the bit is set, else 0. mask: bint1 of g's rows and columns.
Tensor masked(const Tensor& g, const Tensor& mask);
// The same straight to where the gradient lives, without a tensor between. The slot's dtype is fp32.
void masked_into(const Tensor& g, const Tensor& mask, GradSlot& slot);

// ORs a bit into a flag word that threads share; nothing to do without one.
inline void raise_flag(uint32_t* flag, uint32_t bit) {
  if (flag != nullptr) std::atomic_ref<uint32_t>(*flag).fetch_or(bit, std::memory_order_relaxed);
}

}  // namespace bitgrad
