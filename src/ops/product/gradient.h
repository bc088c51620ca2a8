// The two backward products of a linear layer, each with its own mode. docs/numerics.md section 5.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "bitgrad/autograd/tape.h"
#include "ops/product/operand.h"

namespace bitgrad::detail {

// What a mode must support: the operand that gy is multiplied by.
struct GradientForm {
  std::string_view name;  // "gx" or "gw", for errors
  std::string_view other_name;
  bool transposed = false;  // the rows of gy are contracted
  OperandForm other;
  bool per_group = false;
  bool shape_known = true;            // false: errors leave out the shape of `other`
  std::string_view where = "linear";  // the op that errors name
  bool windows = false;               // product of a convolution, whose scales vary along neither windows nor rows of w
};

// C[f,n] = sum_k A[f,k] B[k,n]: B is the saved operand as stored; A is gy [f,k] (gx: B = w), or gy transposed, [k,f]
// (gw: B = x).
struct GradientProduct {
  std::string_view name = {};
  std::string_view other_name = {};
  Tensor gy = {};  // fp32, bf16 or fp64, dense
  bool transposed = false;
  Tensor other = {};
  bool per_group = false;               // int8: one product per group of columns of `other`
  std::optional<RandomStream> sr = {};  // int8: draws for rounding gy; nearest if not given
  Tensor gy_codes = {};                 // int8: the codes of gy, if share_int8_codes has computed them
  bool gy_transposed = false;           // gy_codes are [f,k] although gy is transposed
  GradientForm form() const { return {name, other_name, transposed, form_of(other), per_group}; }
};

// Throws Error unless this mode supports the product. Called before the forward.
void check_product(ProductMode mode, const GradientForm& form);
void gradient_product(ProductMode mode, const GradientProduct& p, GradSlot& slot);
// Calls `run` with the arguments of the product in modes fp32 and bf16, gy folded and rounded as the mode requires; C
// is not set.
void with_product(ProductMode mode, const GradientProduct& p, const std::function<void(kernels::GemmArgs&)>& run);
// gw for operands that come in blocks of rows (p.other is not set), one per group, each with its part of the columns of
// gy and of the rows of gw. The products of the blocks are added in ascending order, in fp32 (fp64 for fp64). Modes
// fp32 and bf16; a single operand with one block supports any mode.
void gradient_product(ProductMode mode, GradientProduct p, std::span<const Operand* const> others, GradSlot& slot);
inline void gradient_product(ProductMode mode, GradientProduct p, const Operand& other, GradSlot& slot) {
  const Operand* const others[] = {&other};
  gradient_product(mode, std::move(p), others, slot);
}

// Whether the scale of the contracted index is folded into the other operand: a single scale, or one per stored row,
// and no zero point or offset.
bool folds(const ScaleMap& scale);

// For int8 only (int8_gradient.cpp).
void check_int8(const GradientForm& form);
void int8_product(const GradientProduct& p, GradSlot& slot);
// Computes gy's int8 codes for both products from the same reads of gy, unless one of them needs codes per group.
void share_int8_codes(GradientProduct& gx, GradientProduct& gw);

}  // namespace bitgrad::detail
