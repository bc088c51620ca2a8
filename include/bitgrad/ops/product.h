// The products of linear(x, w) before there are values: what their modes take, and the layouts in which their kernels
// read the operands. docs/numerics.md sections 4 and 5. The op plans with the same functions, so that a layout that was
// planned here is the one that it reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bitgrad/dtype/layout.h"
#include "bitgrad/ops/conv.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/tensor/quant_params.h"

namespace bitgrad {

// Kinds int, uint and sign: codes, int32 and int64.
bool is_integer(DType dtype);
// How many products of two numbers of these integer dtypes an int32 sum holds, whatever they are.
int64_t most_products_in_int32(DType a, DType b);

// A stored matrix before it has values.
struct OperandForm {
  int64_t rows = 0, cols = 0;
  DType dtype = dtypes::fp32;
  std::optional<Granularity> scales = {};   // none: bare numbers
  bool unit_scale = false;                  // all scales are 1, and none is stored
  bool zero_point = false, offset = false;  // an integer zero point, a real offset
  std::string scheme = {};                  // for errors; empty: not known
};
// The form of a tensor, as a matrix.
OperandForm form_of(const Tensor& matrix);

// The windows of images [n,h,w,c], whose pixels have the form `pixels`, as conv2d reads them: [n*oh*ow, taps*c/groups],
// in a dtype that has a code for pixels outside. Throws Error as conv2d.
OperandForm windows_form(const OperandForm& pixels, const Shape& image, const Conv2dOptions& options);

// y[n,o] = sum_i x[n,i] w[o,i] (+ bias[o]), and what its backward multiplies.
struct ProductForm {
  OperandForm x = {};  // rows 0: not known yet
  OperandForm w = {};
  bool bias = false;
  DType y = dtypes::fp32;       // fp32 or bf16
  bool integer_out = false;     // int32 sums of the bare codes (integer_linear)
  bool gx = false, gw = false;  // which gradients training wants
  ProductModes modes = {};
  int64_t taps = 0;        // x are the windows of a convolution with so many taps; 0: linear
  bool row_alone = false;  // ProductModes::row_alone
};

// Throws Error where linear, or conv2d, would, for a wanted gradient whose mode the operands do not have.
void check_modes(const ProductForm& form);

struct ProductPlan {
  Layout w_layout;            // read by the forward product
  bool w_transposed = false;  // gx reads w in layout transposed
  bool x_transposed = false;  // gw reads the codes of x in layout transposed
};
// On the current device, for x.rows > 0. Pure: nothing is allocated or run.
ProductPlan plan_product(const ProductForm& form);

}  // namespace bitgrad
