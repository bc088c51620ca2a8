// The three products of a linear layer, each in a mode of its own. docs/numerics.md sections 4 and 5.
#pragma once

#include <optional>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/kernels/gemm.h"
#include "bitgrad/ops/ops.h"

namespace bitgrad::detail {

// y = x w^T (+ bias, which is fp32 or undefined) by the best row among the layouts that w has; x is packed into the
// layout that the row wants. y: fp32, fp64, or int32 of operands without scales.
void forward_product(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y);

// A product of a backward, C[f,n] = sum_k A[f,k] B[k,n]: B is the saved operand as it lies, A is gy [f,k] (gx: B = w),
// or gy turned, [k,f] (gw: B = x).
struct GradientProduct {
  std::string_view name;  // "gx" or "gw", for errors
  std::string_view other_name;
  Tensor gy;  // fp32, bf16 or fp64, dense
  bool turned = false;
  Tensor other;
  bool per_group = false;          // int8: one product a group of columns of `other`
  std::optional<RandomStream> sr;  // int8: rounding of gy; none: nearest
  bool form_only = false;          // `other` stands for tensors of its form: errors leave out its shape
  Tensor gy_codes = {};            // int8: the codes of gy, where share_int8_codes has made them
};

// Throws Error unless the product can be taken in this mode; gy is not read. Called before the forward.
void check_product(ProductMode mode, const GradientProduct& p);
void gradient_product(ProductMode mode, const GradientProduct& p, GradSlot& slot);

// C = A B goes to where the gradient lives, A and B of `args` being set: as a whole, or in blocks of rows that a fused
// update takes one by one (tape.h, GradRows). A's free index is the row. Both ways give the same bits: floats are
// summed in one order, that of the row of family gemm that runs the whole product. b_turned: B's codes in the other
// order too (linear_turned.h), for exact products on a device; nullptr: they are not there.
void product_into(GemmArgs& args, GradSlot& slot, const GemmOperand* b_turned = nullptr);

// int8 alone (linear_int8.cpp).
void check_int8(const GradientProduct& p);
void int8_product(const GradientProduct& p, GradSlot& slot);
// Both products of one gy in int8: makes gy's codes for both from the same reads, unless one needs them by groups.
void share_int8_codes(GradientProduct& gx, GradientProduct& gw);

}  // namespace bitgrad::detail
