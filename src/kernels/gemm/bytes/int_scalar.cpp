// The complete reference for integer products: acc = sum_k (qa - za) (qb - zb), exact, for all codes of kind int, uint
// or sign, any zero points, real offsets and groups, in either storage order. Codes of at most 8 bits are summed in
// int32 over a block of k, then in int64. Wider codes are summed in 128 bits (modulo 2^128) and saturated to int64.
#include <algorithm>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/gemm/common/epilogue.h"
#include "kernels/gemm/common/formulas.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/kernels.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int64_t kBlock = 64;     // rows and columns of C per chunk
constexpr int64_t kDepth = 512;    // k per block
constexpr int64_t kMaxZero = 512;  // (255 + 512)^2 * kDepth < 2^31

// Types of a value, a product of two, the sum over a block of k, and the sum over k. Wide sums are taken modulo 2^128.
struct Narrow {
  using Number = int16_t;
  using Product = int32_t;
  using Partial = int32_t;
  using Sum = int64_t;
};
struct Wide {
  using Number = int64_t;
  using Product = Int128;
  using Partial = UInt128;
  using Sum = UInt128;
};

// out[f][kDepth] = q - z for free indices f0 .. f0+count and k0 .. k0+depth, which lie in one group. At the ends of
// int64 the difference wraps.
template <typename Number>
void expand(const GemmOperand& x, int64_t f0, int64_t count, int64_t k0, int64_t depth, Number* out) {
  int64_t line[kDepth], zeros[kBlock];
  for (int64_t f = 0; f < count; ++f) zeros[f] = zero_at(x, param_at(x, f0 + f, k0));
  const auto number = [&](int64_t q, int64_t f) {
    return static_cast<Number>(static_cast<uint64_t>(q) - static_cast<uint64_t>(zeros[f]));
  };
  if (x.k_major) {
    for (int64_t k = 0; k < depth; ++k) {
      unpack_row(x.dtype, stored_row(x, k0 + k), f0, count, line);
      for (int64_t f = 0; f < count; ++f) out[f * kDepth + k] = number(line[f], f);
    }
    return;
  }
  for (int64_t f = 0; f < count; ++f) {
    unpack_row(x.dtype, stored_row(x, f0 + f), k0, depth, line);
    for (int64_t k = 0; k < depth; ++k) out[f * kDepth + k] = number(line[k], f);
  }
}

template <typename Sum>
int64_t saturate(Sum sum) {
  return saturate_sum(static_cast<UInt128>(sum));
}

// Computes one block of C on one thread.
template <typename T>
class Block {
 public:
  Block(const GemmArgs& args, int64_t i0, int64_t j0)
      : args_(args),
        kind_(integer_product(args)),
        i0_(i0),
        j0_(j0),
        rows_(std::min(kBlock, args.m - i0)),
        columns_(std::min(kBlock, args.n - j0)),
        scratch_(kBlock * kBlock * (kSumBytes + 8) + 2 * kBlock * kSumBytes + 2 * kBlock * kDepth * kNumberBytes) {
    sums_ = scratch_.template as<Sum>();
    row_sums_ = sums_ + kBlock * kBlock;
    column_sums_ = row_sums_ + kBlock;
    t_ = reinterpret_cast<double*>(column_sums_ + kBlock);
    a_ = reinterpret_cast<Number*>(t_ + kBlock * kBlock);
    b_ = a_ + kBlock * kDepth;
  }

  void run() {
    if (kind_ != IntegerProduct::kGroups) {
      sum(0, args_.k);
      for (int64_t i = 0; i < rows_; ++i) finish(i);
    } else if (args_.c_dtype == dtypes::fp64) {
      run_groups(t_);
    } else {
      run_groups(reinterpret_cast<float*>(t_));
    }
  }

 private:
  using Number = typename T::Number;
  using Sum = typename T::Sum;
  static constexpr int64_t kSumBytes = sizeof(Sum), kNumberBytes = sizeof(Number);

  template <typename Float>
  void run_groups(Float* t) {
    std::fill(t, t + kBlock * kBlock, Float{0});
    const int64_t group = std::max<int64_t>(1, exact_depth(args_));
    for (int64_t k = 0; k < args_.k; k += group) {
      sum(k, std::min(args_.k, k + group));
      for (int64_t i = 0; i < rows_; ++i) {
        add_group(args_, i0_ + i, j0_, columns_, k, line(i, 0), saturate(row_sums_[i]), t + i * kBlock);
      }
    }
    for (int64_t i = 0; i < rows_; ++i) finish_groups(args_, i0_ + i, j0_, columns_, t + i * kBlock);
  }

  // Computes all sums over [begin, end).
  void sum(int64_t begin, int64_t end) {
    std::fill(sums_, column_sums_ + kBlock, 0);
    for (int64_t k0 = begin; k0 < end; k0 += kDepth) {
      const int64_t depth = std::min(kDepth, end - k0);
      expand(args_.a, i0_, rows_, k0, depth, a_);
      expand(args_.b, j0_, columns_, k0, depth, b_);
      for (int64_t i = 0; i < rows_; ++i)
        for (int64_t j = 0; j < columns_; ++j) sums_[i * kBlock + j] += dot(a_ + i * kDepth, b_ + j * kDepth, depth);
      if (kind_ == IntegerProduct::kPlain) continue;
      for (int64_t i = 0; i < rows_; ++i) row_sums_[i] += total(a_ + i * kDepth, depth);
      for (int64_t j = 0; j < columns_; ++j) column_sums_[j] += total(b_ + j * kDepth, depth);
    }
  }

  static Sum dot(const Number* x, const Number* y, int64_t depth) {
    typename T::Partial sum = 0;
    for (int64_t k = 0; k < depth; ++k)
      sum += static_cast<typename T::Partial>(static_cast<typename T::Product>(x[k]) * y[k]);
    return static_cast<Sum>(sum);
  }
  static Sum total(const Number* x, int64_t depth) {
    Sum sum = 0;
    for (int64_t k = 0; k < depth; ++k) sum += static_cast<Sum>(x[k]);
    return sum;
  }

  // The sums of row i minus `minus`, in line_.
  const int64_t* line(int64_t i, int64_t minus) {
    for (int64_t j = 0; j < columns_; ++j)
      line_[j] = saturate(static_cast<UInt128>(sums_[i * kBlock + j]) - static_cast<UInt128>(minus));
    return line_;
  }

  void finish(int64_t i) {
    if (kind_ == IntegerProduct::kPlain) {
      const int64_t minus = args_.row_minus == nullptr ? 0 : args_.row_minus[i0_ + i];
      return finish_row(args_, i0_ + i, j0_, columns_, line(i, minus));
    }
    int64_t sum_b[kBlock];
    for (int64_t j = 0; j < columns_; ++j) sum_b[j] = saturate(column_sums_[j]);
    finish_offsets(args_, i0_ + i, j0_, columns_, line(i, 0), saturate(row_sums_[i]), sum_b);
  }

  const GemmArgs& args_;
  const IntegerProduct kind_;
  const int64_t i0_, j0_, rows_, columns_;
  const Workspace scratch_;
  Sum *sums_ = nullptr, *row_sums_ = nullptr, *column_sums_ = nullptr;
  double* t_ = nullptr;
  Number *a_ = nullptr, *b_ = nullptr;
  int64_t line_[kBlock];
};

bool is_narrow(const GemmOperand& x, int64_t free, int64_t k) {
  if (!x.dtype.is_code()) return false;
  const ZeroRange range = zero_range(x, free, k);
  return range.low >= -kMaxZero && range.high <= kMaxZero;
}

}  // namespace
}  // namespace bitgrad::kernels::gemm_detail

namespace bitgrad::kernels::gemm_impl {

using namespace gemm_detail;

bool gemm_int_scalar_supports(const GemmArgs& args) { return gemm_is_integer(args) && integer_output_supported(args); }

double gemm_int_scalar_cost(const GemmArgs& args) { return 1.1 * kReferenceCost + 2000 + multiply_adds(args) / 18; }

void gemm_int_scalar(const GemmArgs& args) {
  const int64_t row_blocks = ceil_div(args.m, kBlock), column_blocks = ceil_div(args.n, kBlock);
  const bool narrow = is_narrow(args.a, args.m, args.k) && is_narrow(args.b, args.n, args.k);
  parallel_for(row_blocks * column_blocks, [&](int64_t chunk) {
    const int64_t i0 = chunk / column_blocks * kBlock, j0 = chunk % column_blocks * kBlock;
    narrow ? Block<Narrow>(args, i0, j0).run() : Block<Wide>(args, i0, j0).run();
  });
}

}  // namespace bitgrad::kernels::gemm_impl
