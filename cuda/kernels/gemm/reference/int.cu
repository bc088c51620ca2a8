// Exact integer products: the sums of qa qb, qa and qb, corrected for zero points at the end of each group.
#include "cuda/device/builtins.h"
#include "cuda/kernels/gemm/reference/reference.h"

namespace bitgrad::cuda::gemm {
namespace {

// Codes of at most 8 bits: int32 sums within a step, int64 overall; zero points are subtracted at the end.
struct Narrow {
  using Number = int16_t;
  using Partial = int32_t;
  using Sum = int64_t;
  static constexpr bool kZerosInNumbers = false;
  static constexpr int kSide = 4, kTile = kNarrowTile, kPitch = kTile + 1;
};
// Values are q - z modulo 2^64, sums modulo 2^128.
struct Wide {
  using Number = int64_t;
  using Partial = gemm_detail::UInt128;
  using Sum = gemm_detail::UInt128;
  static constexpr bool kZerosInNumbers = true;
  static constexpr int kSide = 2, kTile = kWideTile, kPitch = kTile + 1;
};

// Loads tile[k][free] for indices from f0 and k0. Positions beyond the operand are left unset and never read.
template <typename T>
BITGRAD_DEVICE void load_tile(const Operand& x, int64_t f0, int64_t free, int64_t k0, int64_t k_end,
                              typename T::Number (*tile)[T::kPitch]) {
  constexpr int kTile = T::kTile;
  for (int at = static_cast<int>(threadIdx.x); at < kTile * kReferenceStep; at += kReferenceThreads) {
    const int f = x.k_major ? at % kTile : at / kReferenceStep, k = x.k_major ? at / kTile : at % kReferenceStep;
    if (f0 + f >= free || k0 + k >= k_end) continue;
    int64_t number = integer_at(x, f0 + f, k0 + k);
    if (T::kZerosInNumbers && x.scale.zero != nullptr) {
      number = static_cast<int64_t>(static_cast<uint64_t>(number) -
                                    static_cast<uint64_t>(int64_t{zero_at(x, param_at(x, f0 + f, k0 + k))}));
    }
    tile[k][f] = static_cast<typename T::Number>(number);
  }
}

// A thread's outputs: rows y + 16 r and columns x + 16 c of the tile.
template <typename T>
struct Sums {
  static constexpr int kSide = T::kSide, kPitch = T::kPitch;
  typename T::Sum sum[kSide][kSide], sum_a[kSide], sum_b[kSide];

  BITGRAD_DEVICE void clear() {
    BITGRAD_UNROLL
    for (int r = 0; r < kSide; ++r) {
      sum_a[r] = sum_b[r] = 0;
      BITGRAD_UNROLL
      for (int c = 0; c < kSide; ++c) sum[r][c] = 0;
    }
  }
  BITGRAD_DEVICE void add(const typename T::Number (*a)[kPitch], const typename T::Number (*b)[kPitch], int y, int x,
                          int depth) {
    using Partial = typename T::Partial;
    Partial part[kSide][kSide] = {}, part_a[kSide] = {}, part_b[kSide] = {};
    for (int k = 0; k < depth; ++k) {
      Partial row[kSide], column[kSide];
      BITGRAD_UNROLL
      for (int r = 0; r < kSide; ++r) part_a[r] += row[r] = static_cast<Partial>(a[k][y + 16 * r]);
      BITGRAD_UNROLL
      for (int c = 0; c < kSide; ++c) part_b[c] += column[c] = static_cast<Partial>(b[k][x + 16 * c]);
      BITGRAD_UNROLL
      for (int r = 0; r < kSide; ++r) BITGRAD_UNROLL
      for (int c = 0; c < kSide; ++c) part[r][c] += row[r] * column[c];
    }
    BITGRAD_UNROLL
    for (int r = 0; r < kSide; ++r) {
      sum_a[r] += static_cast<typename T::Sum>(part_a[r]);
      sum_b[r] += static_cast<typename T::Sum>(part_b[r]);
      BITGRAD_UNROLL
      for (int c = 0; c < kSide; ++c) sum[r][c] += static_cast<typename T::Sum>(part[r][c]);
    }
  }
};

// Stores one finished element, without groups.
BITGRAD_DEVICE void finish(const IntArgs& args, int64_t i, int64_t j, int64_t sum, int64_t sum_a, int64_t sum_b) {
  store_sums(args.out, free_params(args.a), free_params(args.b), i, j, sum, sum_a, sum_b);
}
BITGRAD_DEVICE void finish(const IntArgs& args, int64_t i, int64_t j, gemm_detail::UInt128 sum,
                           gemm_detail::UInt128 sum_a, gemm_detail::UInt128 sum_b) {
  const FreeParams a = free_params(args.a), b = free_params(args.b);
  if (args.form == ProductForm::kPlain) {
    const int64_t minus = args.out.row_minus == nullptr ? 0 : args.out.row_minus[i];
    const auto less = static_cast<gemm_detail::UInt128>(gemm_detail::Int128{minus});
    return store_plain(args.out, a, b, i, j, gemm_detail::saturate_sum(sum - less));
  }
  store_offsets(args.out, a, b, i, j, gemm_detail::saturate_sum(sum), gemm_detail::saturate_sum(sum_a),
                gemm_detail::saturate_sum(sum_b));
}

// Sums over a group after subtracting zero points: acc_g and S_a,g.
struct GroupSums {
  int64_t acc, sum_a;
};
BITGRAD_DEVICE GroupSums group_sums(const IntArgs& args, int64_t i, int64_t at_b, int64_t length, int64_t sum,
                                    int64_t sum_a, int64_t sum_b) {
  const int64_t za = zero_at(args.a, i * free_params(args.a).step), zb = zero_at(args.b, at_b);
  return {gemm_detail::without_zeros(sum, sum_a, sum_b, length, za, zb, 0), sum_a - length * za};
}
BITGRAD_DEVICE GroupSums group_sums(const IntArgs&, int64_t, int64_t, int64_t, gemm_detail::UInt128 sum,
                                    gemm_detail::UInt128 sum_a, gemm_detail::UInt128) {
  return {gemm_detail::saturate_sum(sum), gemm_detail::saturate_sum(sum_a)};
}

template <typename T>
BITGRAD_DEVICE void add_group(const IntArgs& args, int64_t i, int64_t j, int64_t k, int64_t length, const Sums<T>& s,
                              int r, int c, float* t) {
  const int64_t at = param_at(args.b, j, k);
  const GroupSums g = group_sums(args, i, at, length, s.sum[r][c], s.sum_a[r], s.sum_b[c]);
  const float of_row = args.blocks ? scale_at(args.a, param_at(args.a, i, k)) : 1.0f;
  const float scale = scale_at(args.b, at) * of_row;
  *t = *t + (args.b.scale.offset == nullptr ? gemm_detail::group_term(g.acc, scale)
                                            : gemm_detail::group_term(g.acc, scale, static_cast<float>(g.sum_a),
                                                                      args.b.scale.offset[at] * of_row));
}

template <typename T>
BITGRAD_DEVICE void run_tile(const IntArgs& args) {
  constexpr int kSide = T::kSide, kTile = T::kTile;
  __shared__ typename T::Number a[kReferenceStep][T::kPitch], b[kReferenceStep][T::kPitch];
  const Output& out = args.out;
  const unsigned down = static_cast<unsigned>((out.m + kTile - 1) / kTile);
  const int64_t i0 = int64_t{blockIdx.x % down} * kTile, j0 = int64_t{blockIdx.x / down} * kTile;
  const int y = static_cast<int>(threadIdx.x) / 16, x = static_cast<int>(threadIdx.x) % 16;
  const bool grouped = args.form == ProductForm::kGroups;
  Sums<T> sums;
  float t[kSide][kSide] = {};
  sums.clear();
  for (int64_t first = 0; first < out.k; first += args.group) {
    const int64_t end = first + args.group < out.k ? first + args.group : out.k;
    for (int64_t k = first; k < end; k += kReferenceStep) {
      __syncthreads();
      load_tile<T>(args.a, i0, out.m, k, end, a);
      load_tile<T>(args.b, j0, out.n, k, end, b);
      __syncthreads();
      sums.add(a, b, y, x, static_cast<int>(end - k < kReferenceStep ? end - k : kReferenceStep));
    }
    if (!grouped) break;
    BITGRAD_UNROLL
    for (int r = 0; r < kSide; ++r) {
      BITGRAD_UNROLL
      for (int c = 0; c < kSide; ++c) {
        const int64_t i = i0 + y + 16 * r, j = j0 + x + 16 * c;
        if (i < out.m && j < out.n) add_group(args, i, j, first, end - first, sums, r, c, &t[r][c]);
      }
    }
    sums.clear();
  }
  BITGRAD_UNROLL
  for (int r = 0; r < kSide; ++r) {
    BITGRAD_UNROLL
    for (int c = 0; c < kSide; ++c) {
      const int64_t i = i0 + y + 16 * r, j = j0 + x + 16 * c;
      if (i >= out.m || j >= out.n) continue;
      if (grouped) {
        const FreeParams p = free_params(args.a);
        store_value(out, i, j, t[r][c] * (p.scale == nullptr || args.blocks ? 1.0f : p.scale[i * p.step]));
      } else {
        finish(args, i, j, sums.sum[r][c], sums.sum_a[r], sums.sum_b[c]);
      }
    }
  }
}

}  // namespace

BITGRAD_GLOBAL void gemm_int_narrow_simt(IntArgs args) { run_tile<Narrow>(args); }
BITGRAD_GLOBAL void gemm_int_wide_simt(IntArgs args) { run_tile<Wide>(args); }
BITGRAD_GLOBAL void gemm_finish_sums(FinishArgs args) {
  const int64_t n = args.out.n, count = args.out.m * n, step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < count; e += step)
    store_plain(args.out, args.a, args.b, e / n, e % n, args.sums[e]);
}

}  // namespace bitgrad::cuda::gemm
