// The total reference of integer products: acc = sum_k (qa - za) (qb - zb), exact, for any codes of kind int, uint or
// sign, any zero points, either order of storage. Codes of at most 8 bits are summed in int32 over a block of k, then
// int64; wider ones in 128 bits, saturated to int64.
#include <algorithm>
#include <limits>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/gemm/common.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/rows.h"

namespace bitgrad::gemm_detail {
namespace {

constexpr int64_t kBlock = 64;     // rows and columns of C in a chunk
constexpr int64_t kDepth = 512;    // k in a block
constexpr int32_t kMaxZero = 512;  // (255 + 512)^2 * kDepth < 2^31

__extension__ using Int128 = __int128;

// Number, sum over a block of k, sum over k.
struct Narrow {
  using Number = int16_t;
  using Partial = int32_t;
  using Sum = int64_t;
};
struct Wide {
  using Number = int64_t;
  using Partial = Int128;
  using Sum = Int128;
};

// out[f][kDepth] = q - z of free indices f0 .. f0+count and k0 .. k0+depth. At the ends of int64 the difference wraps.
template <typename Number>
void expand(const GemmOperand& x, int64_t f0, int64_t count, int64_t k0, int64_t depth, Number* out) {
  int64_t line[kDepth];
  const auto number = [&](int64_t q, int64_t f) {
    return static_cast<Number>(static_cast<uint64_t>(q) - static_cast<uint64_t>(int64_t{free_zero(x, f)}));
  };
  if (x.k_major) {
    for (int64_t k = 0; k < depth; ++k) {
      unpack_row(x.dtype, stored_row(x, k0 + k), f0, count, line);
      for (int64_t f = 0; f < count; ++f) out[f * kDepth + k] = number(line[f], f0 + f);
    }
    return;
  }
  for (int64_t f = 0; f < count; ++f) {
    unpack_row(x.dtype, stored_row(x, f0 + f), k0, depth, line);
    for (int64_t k = 0; k < depth; ++k) out[f * kDepth + k] = number(line[k], f0 + f);
  }
}

int64_t saturate(Int128 x) {
  return static_cast<int64_t>(
      std::clamp<Int128>(x, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()));
}
int64_t saturate(int64_t x) { return x; }

template <typename T>
void run_block(const GemmArgs& args, int64_t i0, int64_t j0) {
  using Number = typename T::Number;
  const int64_t rows = std::min(kBlock, args.m - i0), columns = std::min(kBlock, args.n - j0);
  const Workspace scratch(2 * kBlock * kDepth * static_cast<int64_t>(sizeof(Number)) +
                          kBlock * kBlock * static_cast<int64_t>(sizeof(typename T::Sum)));
  auto* sums = scratch.as<typename T::Sum>();
  auto* a = reinterpret_cast<Number*>(sums + kBlock * kBlock);
  Number* b = a + kBlock * kDepth;
  std::fill(sums, sums + kBlock * kBlock, 0);
  for (int64_t k0 = 0; k0 < args.k; k0 += kDepth) {
    const int64_t depth = std::min(kDepth, args.k - k0);
    expand(args.a, i0, rows, k0, depth, a);
    expand(args.b, j0, columns, k0, depth, b);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        const Number *x = a + i * kDepth, *y = b + j * kDepth;
        typename T::Partial sum = 0;
        for (int64_t k = 0; k < depth; ++k) sum += static_cast<typename T::Partial>(x[k]) * y[k];
        sums[i * kBlock + j] += sum;
      }
    }
  }
  int64_t line[kBlock];
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) line[j] = saturate(sums[i * kBlock + j]);
    finish_row(args, i0 + i, j0, columns, line);
  }
}

bool is_narrow(const GemmOperand& x, int64_t free) {
  if (!x.dtype.is_code()) return false;
  if (x.scale.zero == nullptr) return true;
  const int64_t count = x.scale.per_tensor() ? std::min<int64_t>(free, 1) : free;
  return std::all_of(x.scale.zero, x.scale.zero + count, [](int32_t z) { return z >= -kMaxZero && z <= kMaxZero; });
}

}  // namespace
}  // namespace bitgrad::gemm_detail

namespace bitgrad::gemm_rows_detail {

using namespace gemm_detail;

bool gemm_int_scalar_supports(const GemmArgs& args) { return gemm_is_integer(args) && integer_output_supported(args); }

double gemm_int_scalar_cost(const GemmArgs& args) { return 1.1 * kReferenceCost + 2000 + multiply_adds(args) / 18; }

void gemm_int_scalar(const GemmArgs& args) {
  const int64_t row_blocks = ceil_div(args.m, kBlock), column_blocks = ceil_div(args.n, kBlock);
  const bool narrow = is_narrow(args.a, args.m) && is_narrow(args.b, args.n);
  parallel_for(row_blocks * column_blocks, [&](int64_t chunk) {
    const int64_t i0 = chunk / column_blocks * kBlock, j0 = chunk % column_blocks * kBlock;
    narrow ? run_block<Narrow>(args, i0, j0) : run_block<Wide>(args, i0, j0);
  });
}

}  // namespace bitgrad::gemm_rows_detail
