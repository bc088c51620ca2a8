// Helpers shared by ops: checks, widening of gradients, masks and sums.
#pragma once

#include <atomic>
#include <span>
#include <string_view>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/ops/product.h"
#include "bitgrad/tensor/tensor.h"
#include "quant/values.h"

namespace bitgrad::kernels {
struct GemmOperand;  // kernels/gemm.h
struct GemmArgs;
}  // namespace bitgrad::kernels

namespace bitgrad {

// A gradient as values for computation, dense: bf16 is widened to fp32; fp32 and fp64 are unchanged.
Tensor wide(const Tensor& gradient);
// Allocates the values of a result in `dtype`, to be passed to narrowed. For bf16: fp32 in workspace memory.
Tensor wide_result(const Shape& shape, DType dtype);
// Converts `values` to `dtype`: for bf16, rounds fp32 (dense) to nearest even; otherwise returns `values` itself.
Tensor narrowed(const Tensor& values, DType dtype);
// The fp32 values of codes, and of int32 sums with a scale.
// Codes: s * (q - z), or s * q + m. int32, with or without a scale: float(q) * s, each operation rounded once. Throws
// Error that names `op` for other dtypes, and for int32 with a zero point or an offset.
Tensor values_of(std::string_view op, const Tensor& x, MemoryKind kind = MemoryKind::kActivation);
// Throws Error unless `dtype` is valid for a result of fp32 values: fp32 or bf16.
void require_result(std::string_view op, DType dtype);
// Throws Error unless x is fp32 or fp64, canonical, dense and without scales.
void require_float(std::string_view op, std::string_view what, const Tensor& x);
// The same, but also accepts bf16.
void require_values(std::string_view op, std::string_view what, const Tensor& x);
// Of a product of x = in[0] by w = in[1], all fp64 or none: the bias in[2], undefined without one.
Tensor checked_bias(std::string_view op, std::span<const Tensor> in);
void require_same(std::string_view op, const Tensor& a, const Tensor& b);

// Throws Error(kDevice) that names both devices unless x is on the current device. For functions that no tape checks.
void require_here(std::string_view op, std::string_view what, const Tensor& x);

// Largest absolute value of an integer dtype, as a double.
double magnitude(DType dtype);

// A tensor as an operand of family gemm, with its scales. k_major: stored as [k, free].
kernels::GemmOperand gemm_operand(const Tensor& t, bool k_major);
// Writes the product directly into the slot's gradient.
void gemm_into(kernels::GemmArgs& args, GradSlot& slot);

// Reports to consumers of rows of this gradient that the current device (not the CPU) does not produce rows.
void decline_rows_on_device(const GradSlot& slot);
// Sum of all elements of x (fp32, dense) in the order of docs/numerics.md section 8; fp32 [].
Tensor total_of(const Tensor& x);
// Column sums of g[n,o], fp32 or fp64.
Tensor column_sums(const Tensor& g);
// out = g (fp32 or bf16, dense) where the bit is set, else 0; fp32, or rounded to bf16. mask: bint1 with the rows and
// columns of g.
Tensor masked(const Tensor& g, const Tensor& mask, DType dtype = dtypes::fp32);
// The same as the slot's gradient; of dtype fp32 written directly, without a temporary tensor.
void masked_into(const Tensor& g, const Tensor& mask, GradSlot& slot);

// Atomically ORs a bit into a flag word shared by threads; does nothing for nullptr.
inline void raise_flag(uint32_t* flag, uint32_t bit) {
  if (flag != nullptr) std::atomic_ref<uint32_t>(*flag).fetch_or(bit, std::memory_order_relaxed);
}

}  // namespace bitgrad
