#include "kernels/gemm/bytes/s8.h"

#include <cmath>
#include <cstring>

#include "bitgrad/base/parallel.h"
#include "kernels/gemm/kernels.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int64_t kBlockRowsWithSums = 192;   // if sums are kept between blocks of k
constexpr int64_t kBlockRowsWithGroups = 96;  // if both exact and scaled sums are kept

int64_t element_bytes(const S8Kernel& kernel) { return kernel.words ? 2 : 1; }

bool group_is_small(const GemmArgs& args, int64_t element) {
  return !has_blocks(args.a) && integer_product(args) == IntegerProduct::kGroups && args.k > 0 &&
         padded_group(exact_depth(args), element) * element <= kGroupDepthBytes;
}

// Maximum number of rows in a block of C.
int64_t block_rows(const GemmArgs& args, int64_t element, bool small_groups) {
  if (small_groups) return kBlockRows;
  if (integer_product(args) == IntegerProduct::kGroups) return kBlockRowsWithGroups;
  return args.k > kDepthBytes / element ? kBlockRowsWithSums : kBlockRows;
}

// The smallest and largest q - z.
struct Range {
  int64_t low, high;
  Range(const ByteRange& codes, const ZeroRange& zero)
      : low(codes.low + codes.shift - zero.high), high(codes.high + codes.shift - zero.low) {}
  int64_t magnitude() const { return std::max(std::abs(low), std::abs(high)); }
};

bool fits_word(int64_t low, int64_t high) { return low >= INT16_MIN && high <= INT16_MAX; }

// Whether the sums of a group fit in int32 and their correction terms in 16 bits (see s8_groups.cpp).
bool small_sums(const S8Plan& plan, const ZeroRange& za, const ZeroRange& zb) {
  const Range a(plan.a, za), b(plan.b, zb);
  const int64_t group = plan.group;
  if (static_cast<double>(group) * static_cast<double>(a.magnitude()) * static_cast<double>(b.magnitude()) >
      0x7FFFFFFFp0)
    return false;
  const GemmArgs& args = plan.args;
  const bool row_zeros = args.a.scale.zero != nullptr && !args.a.scale.per_tensor();
  if (row_zeros && !(fits_word(-za.high, -za.low) && fits_word(group * b.low, group * b.high))) return false;
  const bool row_sums = args.b.scale.zero != nullptr || plan.cb != 0;
  const ByteRange& codes = plan.a;
  return !row_sums || (fits_word(plan.cb - zb.high, plan.cb - zb.low) &&
                       fits_word(group * (codes.low + codes.shift), group * (codes.high + codes.shift)));
}

}  // namespace

S8Plan::S8Plan(const GemmArgs& args_in, const S8Kernel& kernel_in)
    : args(args_in),
      kernel(kernel_in),
      kind(integer_product(args)),
      a(byte_range(args.a.dtype)),
      b(byte_range(args.b.dtype)),
      element(element_bytes(kernel)),
      ca(kernel.words ? 0 : a.shift + a.low),
      cb(kernel.words ? 0 : b.shift),
      group(exact_depth(args)) {
  const ZeroRange za = zero_range(args.a, args.m, args.k), zb = zero_range(args.b, args.n, args.k);
  zeros = args.a.scale.zero != nullptr || args.b.scale.zero != nullptr;
  bound = largest_sum(args, group, za, zb);
  small_groups = group_is_small(args, element) && small_sums(*this, za, zb);
  depth = std::min(group, kDepthBytes / element);
  rows = std::min(args.m, block_rows(args, element, small_groups));
  columns = round_up(std::min(args.n, kBlockColumns), kS8Lanes);
  if (small_groups) {
    const int64_t padded = padded_group(group, element);
    depth = group * std::min({ceil_div(args.k, group), kMaxGroups, kGroupDepthBytes / (padded * element)});
  }
  step = round_up(depth, 8);
}

void S8Plan::put_a(const int8_t* codes, int64_t count, int64_t padded, void* out) const {
  if (kernel.words) return widen(codes, count, padded, static_cast<int32_t>(a.shift), static_cast<int16_t*>(out));
  // The bytes beyond count are multiplied by zeros of B.
  make_unsigned(codes, padded, a.shift - ca, static_cast<uint8_t*>(out));
}

bool s8_supports(const GemmArgs& args) {
  const IntegerProduct kind = integer_product(args);
  return has_small_integer_codes(args.a.dtype) && has_small_integer_codes(args.b.dtype) &&
         kind != IntegerProduct::kNone && integer_output_supported(args) &&
         (kind == IntegerProduct::kPlain || args.c_dtype != dtypes::fp64);
}

void s8_gemm(const GemmArgs& args, const S8Kernel& kernel) {
  if (args.m == 0 || args.n == 0) return;
  const S8Plan plan(args, kernel);
  // Zero points far outside the code range: the sums need more than 64 bits.
  if (!plan.small_groups && plan.bound > 0x1p62) return gemm_impl::gemm_int_scalar(args);
  const int64_t column_chunks = ceil_div(args.n, plan.columns);
  const auto run = plan.small_groups ? &run_s8_groups : &run_s8_chunk;
  parallel_for(ceil_div(args.m, plan.rows) * column_chunks, [&](int64_t chunk) {
    run(plan, chunk / column_chunks * plan.rows, chunk % column_chunks * plan.columns);
  });
}

// Measured on a Sapphire Rapids core. Zero points are assumed to fit the sums of small groups, because their addresses
// may be null when a product is planned.
double s8_cost(const GemmArgs& args, const S8Kernel& kernel) {
  constexpr double kCall = 600, kOutput = 0.15, kGroupHead = 2.5, kLargeGroup = 1.0;
  const S8Rates& rates = kernel.rates;
  const int64_t element = element_bytes(kernel), group = std::max<int64_t>(1, exact_depth(args));
  const bool grouped = integer_product(args) == IntegerProduct::kGroups, small = group_is_small(args, element);
  const double groups = grouped ? static_cast<double>(ceil_div(args.k, group)) : 0;
  const double k = grouped ? groups * static_cast<double>(small ? padded_group(group, element) : round_up(group, 8))
                           : static_cast<double>(round_up(args.k, 8));
  const double m = static_cast<double>(args.m), n = static_cast<double>(args.n);
  const double columns = static_cast<double>(round_up(args.n, kS8Lanes));
  // Each block of C expands its rows of A and B again.
  const double row_blocks = static_cast<double>(ceil_div(args.m, block_rows(args, element, small)));
  const double expanded = k * (m * static_cast<double>(ceil_div(args.n, kBlockColumns)) + n * row_blocks);
  const double grouping = groups * (m * columns * (small ? rates.group_ns : kLargeGroup) + kGroupHead * n * row_blocks);
  return kCall + rates.expand * expanded + kOutput * m * n + m * columns * k / rates.gmacs + grouping;
}

}  // namespace bitgrad::kernels::gemm_detail
