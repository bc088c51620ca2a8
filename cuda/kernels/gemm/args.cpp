#include "cuda/kernels/gemm/args.h"

#include <algorithm>

#include "bitgrad/dtype/codec.h"
#include "kernels/gemm/common/operands.h"

namespace bitgrad::cuda::gemm {
namespace {

NumberForm form_of(DType dtype) {
  switch (dtype.kind()) {
    case DTypeKind::kInt:
      if (dtype.is_code()) return NumberForm::kSigned;
      return dtype == dtypes::int32 ? NumberForm::kInt32 : NumberForm::kInt64;
    case DTypeKind::kUint:
      return NumberForm::kUnsigned;
    case DTypeKind::kSign:
      return NumberForm::kSign;
    case DTypeKind::kCodebook:
      return NumberForm::kCodebook;
    case DTypeKind::kFloat:
      break;
  }
  if (dtype == dtypes::bf16) return NumberForm::kBf16;
  return dtype == dtypes::fp16 ? NumberForm::kFp16 : NumberForm::kFp32;
}

OutputForm output_form(DType dtype) {
  if (dtype == dtypes::bf16) return OutputForm::kBf16;
  if (dtype == dtypes::int32) return OutputForm::kInt32;
  return dtype == dtypes::int64 ? OutputForm::kInt64 : OutputForm::kFp32;
}

}  // namespace

Operand operand_of(const GemmOperand& x) {
  return {static_cast<const uint8_t*>(x.data), x.stride, x.scale, form_of(x.dtype), x.dtype.bits(), x.k_major};
}

Output output_of(const GemmArgs& args) {
  Output out{args.c,
             args.m,
             args.n,
             args.k,
             args.ldc,
             args.bias,
             args.row_minus,
             output_form(args.c_dtype),
             args.accumulate,
             args.sr != nullptr && args.c_dtype == dtypes::bf16,
             {},
             args.first_element};
  if (args.sr != nullptr) out.draws = *args.sr;
  return out;
}

Levels levels_of(DType dtype) {
  Levels levels{};
  if (dtype.kind() == DTypeKind::kCodebook) {
    const float* values = code_values(dtype);
    std::copy(values, values + (size_t{1} << dtype.bits()), levels.level);
  }
  return levels;
}

bool integer_output(const GemmArgs& args) {
  return args.c_dtype != dtypes::fp64 && gemm_detail::integer_output_supported(args);
}

bool exact_sum(const GemmArgs& args) {
  const gemm_detail::IntegerProduct product = gemm_detail::integer_product(args);
  return (product == gemm_detail::IntegerProduct::kPlain || product == gemm_detail::IntegerProduct::kOffsets) &&
         args.a.dtype.is_code() && args.b.dtype.is_code() && integer_output(args);
}
bool fits_int32(const GemmArgs& args, int64_t most_a, int64_t most_b) {
  return args.k <= INT32_MAX / (most_a * most_b);
}

int32_t plane_weight(DType dtype, int plane) {
  if (dtype.kind() == DTypeKind::kSign) return 2;
  return dtype.kind() == DTypeKind::kInt && plane + 1 == dtype.bits() ? -(1 << plane) : 1 << plane;
}

int64_t largest_code(DType dtype) {
  const DTypeInfo& info = dtype.info();
  return std::max(info.qmax, -info.qmin);
}

}  // namespace bitgrad::cuda::gemm
