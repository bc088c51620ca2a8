// Precision of products, as data.
#pragma once

#include <cstdint>
#include <string_view>

#include "bitgrad/base/key.h"
#include "bitgrad/dtype/dtype.h"

namespace bitgrad {

struct RandomStream;

// Precision of a forward or backward product. docs/numerics.md section 5.
enum class ProductMode : uint8_t {
  kFp32,  // fp32 times codes expanded on the fly
  kBf16,  // the float operand is rounded to bf16 first (nearest even, after folding); sums in fp32
  kInt8,  // the float operand is quantized to int8 (absmax, one scale per non-contracted row); integer product
};
template <>
struct EnumNames<ProductMode> {
  static constexpr std::string_view all[] = {"fp32", "bf16", "int8"};
};

struct ProductModes {
  ProductMode gx = ProductMode::kFp32, gw = ProductMode::kFp32;
  // int8: gradients are rounded with these draws (purpose kGradient, id of the layer's path, step = global microbatch;
  // element = row-major index in gy, plus g times the number of elements of gy for group g of gx). gW uses a second
  // stream, which linear derives from this one (purpose kGradientWeight). nullptr: round to nearest. Copied by linear.
  const RandomStream* sr = nullptr;
  bool gx_per_group = false;  // int8 gx for weights with groups of at least 64 along a row: one product per group
  DType y = dtypes::fp32;  // dtype of the result: fp32, or bf16 (rounded once, after the bias); fp64 operands give fp64
  // Each row of y has the same bits as if it were computed alone, in every bits mode: no summation order depends on the
  // number of rows. docs/numerics.md section 4, "One row".
  bool row_alone = false;
};

}  // namespace bitgrad
