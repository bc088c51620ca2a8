// Planning of linear(x, w) and conv2d products before values exist: which modes the operands allow, and the layouts
// that the chosen kernels read. docs/numerics.md sections 4 and 5. The ops call the same functions, so a layout planned
// here is the one they read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bitgrad/dtype/layout.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/spatial.h"
#include "bitgrad/tensor/quant_params.h"

namespace bitgrad {

// Kinds int, uint and sign (codes), int32 and int64.
bool is_integer(DType dtype);
// The number of products of these integer dtypes that an int32 accumulator can sum without overflow in the worst case.
int64_t most_products_in_int32(DType a, DType b);

// A stored matrix whose values are not known yet.
struct OperandForm {
  int64_t rows = 0, cols = 0;
  DType dtype = dtypes::fp32;
  std::optional<Granularity> scales = {};   // nullopt: no scales
  bool unit_scale = false;                  // all scales are 1 and not stored
  bool zero_point = false, offset = false;  // has an integer zero point, a real offset
  std::string scheme = {};                  // for errors; empty: unknown
};
// The form of an existing tensor, viewed as a matrix.
OperandForm form_of(const Tensor& matrix);

// The im2col form of images [n,h,w,c] whose pixels have form `pixels`, as conv2d reads them: [n*oh*ow, taps*c/groups],
// in a dtype that has a code for padding. Throws Error like conv2d.
OperandForm windows_form(const OperandForm& pixels, const Shape& image, const Conv2dOptions& options);

// y[n,o] = sum_i x[n,i] w[o,i] (+ bias[o]), and the operands of its backward products.
struct ProductForm {
  OperandForm x = {};  // rows 0: not known yet
  OperandForm w = {};
  bool bias = false;
  DType y = dtypes::fp32;       // fp32 or bf16
  bool integer_out = false;     // int32 sums of the bare codes (integer_linear)
  bool gx = false, gw = false;  // gradients that training needs
  ProductModes modes = {};
  int64_t taps = 0;        // number of taps if x holds the windows of a convolution; 0: linear
  bool row_alone = false;  // ProductModes::row_alone
};

// Throws the Error of linear (or conv2d) if a needed gradient has a mode that its operands do not support.
void check_modes(const ProductForm& form);

struct ProductPlan {
  Layout w_layout;            // read by the forward product
  bool w_transposed = false;  // gx reads w in layout transposed
  bool x_transposed = false;  // gw reads the codes of x in layout transposed
};
// Plans for the current device; requires x.rows > 0. Pure: allocates and runs nothing.
ProductPlan plan_product(const ProductForm& form);

}  // namespace bitgrad
