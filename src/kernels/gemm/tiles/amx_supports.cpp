// What the products on the tile unit support, independent of B's layout.
#include "kernels/gemm/bytes/s8_expand.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/floats/float_operand.h"
#include "kernels/gemm/tiles/amx.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

// Whether sums of `depth` products of values up to `a` and `b` fit in int32.
bool fits_int32(int64_t depth, int64_t a, int64_t b) { return depth <= INT32_MAX / (a * b); }

// Whether B's values are bare codes with at most one scale per column.
bool scales_at_the_end(const GemmOperand& b) {
  return b.scale.zero == nullptr && b.scale.offset == nullptr && scaled_per_free_index(b);
}
bool float_output(const GemmArgs& args) {
  return (args.c_dtype == dtypes::fp32 || args.c_dtype == dtypes::bf16) && args.row_minus == nullptr;
}

}  // namespace

bool amx_int_supports(const GemmArgs& args) {
  return has_small_integer_codes(args.a.dtype) && has_small_integer_codes(args.b.dtype) &&
         integer_product(args) == IntegerProduct::kPlain && args.a.scale.zero == nullptr &&
         args.b.scale.zero == nullptr && integer_output_supported(args) &&
         fits_int32(args.k, byte_range(args.a.dtype).magnitude(), byte_range(args.b.dtype).magnitude());
}

bool amx_bf16_supports(const GemmArgs& args) {
  return args.a.dtype == dtypes::bf16 && args.a.scale.trivial() && args.b.dtype.kind() == DTypeKind::kSign &&
         scales_at_the_end(args.b) && float_output(args);
}

bool amx_digits_supports(const GemmArgs& args) {
  const DType a = args.a.dtype, b = args.b.dtype;
  const bool folded = fold_of(args) == Fold::kIntoA;
  return a.kind() == DTypeKind::kFloat && a != dtypes::fp64 && has_small_integer_codes(b) && fold_is_legal(args) &&
         (folded || scales_at_the_end(args.b)) && float_output(args) && byte_range(b).shift == 0 &&
         fits_int32(args.k, 128, byte_range(b).magnitude());
}

}  // namespace bitgrad::kernels::gemm_detail
