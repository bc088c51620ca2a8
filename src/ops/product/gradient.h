// The two products of a linear layer's backward, each in a mode of its own. docs/numerics.md section 5.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "bitgrad/autograd/tape.h"
#include "ops/product/operand.h"

namespace bitgrad::detail {

// What a mode must take: the operand that gy is multiplied with.
struct GradientForm {
  std::string_view name;  // "gx" or "gw", for errors
  std::string_view other_name;
  bool transposed = false;  // gy's rows are contracted
  OperandForm other;
  bool per_group = false;
  bool shape_known = true;            // false: errors leave out the shape of `other`
  std::string_view where = "linear";  // the op that errors name
  bool windows = false;               // of a convolution: scales differ along neither windows nor rows of w
};

// C[f,n] = sum_k A[f,k] B[k,n]: B is the saved operand as stored, A is gy [f,k] (gx: B = w), or gy transposed, [k,f]
// (gw: B = x).
struct GradientProduct {
  std::string_view name = {};
  std::string_view other_name = {};
  Tensor gy = {};  // fp32, bf16 or fp64, dense
  bool transposed = false;
  Tensor other = {};
  bool per_group = false;               // int8: one product a group of columns of `other`
  std::optional<RandomStream> sr = {};  // int8: rounding of gy; none: nearest
  Tensor gy_codes = {};                 // int8: the codes of gy, where share_int8_codes has made them
  bool gy_turned = false;               // gy_codes are [f,k] though gy is transposed
  GradientForm form() const { return {name, other_name, transposed, form_of(other), per_group}; }
};

// Throws Error unless the product can be taken in this mode. Called before the forward.
void check_product(ProductMode mode, const GradientForm& form);
void gradient_product(ProductMode mode, const GradientProduct& p, GradSlot& slot);
// The arguments of the product in modes fp32 and bf16, gy folded and rounded as the mode says, but for where C goes.
void with_product(ProductMode mode, const GradientProduct& p, const std::function<void(kernels::GemmArgs&)>& run);
// gw of operands that come in blocks of rows (p.other is not set), one a group: of each its part of the columns of gy
// and of the rows of gw. The products of the blocks are added in ascending order, in fp32 (fp64 for fp64). Modes fp32
// and bf16; a single operand of one block has any.
void gradient_product(ProductMode mode, GradientProduct p, std::span<const Operand* const> others, GradSlot& slot);
inline void gradient_product(ProductMode mode, GradientProduct p, const Operand& other, GradSlot& slot) {
  const Operand* const others[] = {&other};
  gradient_product(mode, std::move(p), others, slot);
}

// Whether the scale of a contracted index is folded into the other operand: one scale for all, or one per stored row;
// no zero point.
bool folds(const ScaleMap& scale);

// int8 alone (int8.cpp).
void check_int8(const GradientForm& form);
void int8_product(const GradientProduct& p, GradSlot& slot);
// Both products of one gy in int8: makes gy's codes for both from the same reads, unless one needs them by groups.
void share_int8_codes(GradientProduct& gx, GradientProduct& gw);

}  // namespace bitgrad::detail
