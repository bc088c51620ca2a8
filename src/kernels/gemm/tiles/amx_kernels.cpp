// The kernels on the tile unit: what they support, what they cost, what they run.
#include <algorithm>

#include "kernels/gemm/bytes/s8_expand.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/floats/float_operand.h"
#include "kernels/gemm/kernels.h"
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

bool reads_panels16(const GemmOperand& b) { return b.dtype.bits() == 1 && !b.k_major; }
bool reads_tiles16(const GemmOperand& b) { return layouts::tiles16.info().supports(b.dtype) && !b.k_major; }

// Two digits represent 15 bits of a row's largest value: enough for bf16, which has 8, but not for fp32.
bool digits2_supports(const GemmArgs& args) { return args.a.dtype == dtypes::bf16 && amx_digits_supports(args); }

// Nanoseconds per element of A, per byte of B for each read, and per code of B packed during the call.
struct Rates {
  double gmacs, a, b, pack;
};
// Measured with 32 .. 512 rows on one core of a Xeon whose int8 tile unit reaches 3100 GMAC/s alone, and 2450 with
// loads of new data (the clock drops).
double cost(const GemmArgs& args, int b_bits, const Rates& rates) {
  // A C that stays in L2, one that does not, and one that is read as well.
  constexpr double kNear = 0.04, kFar = 0.15, kAdded = 0.1, kNearBytes = 1 << 20;
  constexpr double kCall = 3000, kHalfBlock = 0.9;
  const double m = static_cast<double>(args.m), n = static_cast<double>(args.n), k = static_cast<double>(args.k);
  // A block of at most 16 rows takes nearly as long as a whole one: codes are expanded for both.
  const int64_t rest = args.m % kBlockSide;
  const double blocks = static_cast<double>(args.m / kBlockSide) + (rest == 0 ? 0 : rest <= kTileRows ? kHalfBlock : 1);
  const double columns = static_cast<double>(round_up(args.n, kBlockSide));
  const double depth = static_cast<double>(round_up(args.k, 64));
  const double block_bytes = b_bits >= 4 && rates.pack == 0 ? 1 << 20 : 512 << 10;  // as in the cut
  const double reads = std::max(1.0, m * k / block_bytes);
  const double output = (4 * m * n > kNearBytes ? kFar : kNear) + (args.accumulate ? kAdded : 0);
  return kCall + blocks * kBlockSide * columns * depth / rates.gmacs + rates.a * m * k +
         rates.b * reads * n * k * b_bits / 8 + rates.pack * n * k + output * m * n;
}

double pack_ns(const GemmOperand& b) {
  if (b.dtype.bits() == 1) return b.k_major ? 0.045 : 0.035;
  return b.k_major ? 0.22 : 0.14;
}
Rates with_pack(Rates rates, const GemmArgs& args) {
  rates.pack = pack_ns(args.b);
  return rates;
}
int packed_bits(const GemmArgs& args) { return args.b.dtype.bits() == 1 ? 1 : 8; }

Rates code_rates(const GemmArgs& args, int b_bits) {
  const double gmacs = b_bits == 1 ? 2100 : b_bits == 2 ? 1900 : b_bits == 4 ? 1700 : 1500;
  return {gmacs, args.a.k_major ? 0.7 : 0.13, 0.015, 0};
}
Rates half_rates(const GemmArgs& args) { return {1080, args.a.k_major ? 0.37 : 0.26, 0.015, 0}; }
Rates digit_rates(const GemmArgs& args, int parts) {
  return {parts == 3 ? 650.0 : 950.0, (args.a.k_major ? 1.1 : 0.33) * parts, 0.015 * parts, 0};
}

}  // namespace

// ---- what the products support, independent of B's layout ----
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

namespace bitgrad::kernels::gemm_impl {

using namespace gemm_detail;

BITGRAD_DEFINE_GEMM(gemm_s8_b1_i32_tiles_amx, amx_int_supports(args) && reads_panels16(args.b),
                    cost(args, 1, code_rates(args, 1)), amx_int_gemm(args, amx_machine()))
BITGRAD_DEFINE_GEMM(gemm_s8_s8_i32_tiles_amx, amx_int_supports(args) && reads_tiles16(args.b),
                    cost(args, args.b.dtype.bits(), code_rates(args, args.b.dtype.bits())),
                    amx_int_gemm(args, amx_machine()))
BITGRAD_DEFINE_GEMM(gemm_s8_s8_i32_pack_amx, amx_int_supports(args),
                    cost(args, packed_bits(args), with_pack(code_rates(args, packed_bits(args)), args)),
                    amx_int_gemm(args, amx_machine()))
BITGRAD_DEFINE_GEMM(gemm_bf16_b1_f32_tiles_amx, amx_bf16_supports(args) && reads_panels16(args.b),
                    cost(args, 1, half_rates(args)), amx_bf16_gemm(args, amx_machine()))
BITGRAD_DEFINE_GEMM(gemm_bf16_b1_f32_pack_amx, amx_bf16_supports(args),
                    cost(args, 1, with_pack(half_rates(args), args)), amx_bf16_gemm(args, amx_machine()))
BITGRAD_DEFINE_GEMM(gemm_f32_b1_f32_digits3_amx,
                    amx_digits_supports(args) && reads_panels16(args.b) && args.b.dtype.kind() == DTypeKind::kSign,
                    cost(args, 1, digit_rates(args, 3)), amx_digits_gemm(args, 3, amx_machine()))
BITGRAD_DEFINE_GEMM(gemm_f32_b1_f32_digits2_amx,
                    digits2_supports(args) && reads_panels16(args.b) && args.b.dtype.kind() == DTypeKind::kSign,
                    cost(args, 1, digit_rates(args, 2)), amx_digits_gemm(args, 2, amx_machine()))
BITGRAD_DEFINE_GEMM(gemm_f32_s8_f32_digits3_pack_amx, amx_digits_supports(args),
                    cost(args, packed_bits(args), with_pack(digit_rates(args, 3), args)),
                    amx_digits_gemm(args, 3, amx_machine()))
BITGRAD_DEFINE_GEMM(gemm_f32_s8_f32_digits2_pack_amx, digits2_supports(args),
                    cost(args, packed_bits(args), with_pack(digit_rates(args, 2), args)),
                    amx_digits_gemm(args, 2, amx_machine()))

}  // namespace bitgrad::kernels::gemm_impl
