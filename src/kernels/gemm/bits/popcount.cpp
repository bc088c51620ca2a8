// The loops of the popcount products. B's panels of a column group stay in L1 while a block of rows of A is processed.
// The block of A then stays in L1 for the next group, so that few pages of C are written at a time.
#include "kernels/gemm/bits/popcount.h"

#include <algorithm>

#include "bitgrad/base/parallel.h"
#include "kernels/gemm/common/epilogue.h"
#include "kernels/gemm/common/operands.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int64_t kMaxK = int64_t{1} << 28;               // sums and 2 * counts of at most 3 k fit in int32
constexpr int64_t kRowBlockBits = int64_t{1} << 17;       // per plane of A: 16 KiB, beside a group of B in L1
constexpr int64_t kChunkMultiplyAdds = int64_t{1} << 24;  // some 20 us: hides the cost of a parallel loop
constexpr int64_t kMinChunkRows = 16;

bool is_ternary(DType dtype) {
  const DTypeInfo& info = dtype.info();
  return info.bits == 2 && info.kind == DTypeKind::kInt && info.qmin >= -1;
}

bool common_supports(const GemmArgs& args) {
  return integer_product(args) == IntegerProduct::kPlain && args.row_minus == nullptr && !args.a.k_major &&
         !args.b.k_major && args.a.scale.zero == nullptr && args.b.scale.zero == nullptr && args.k <= kMaxK &&
         args.c_dtype != dtypes::fp64 && integer_output_supported(args);
}

// How C is cut into chunks.
struct Cut {
  int64_t rows, groups;  // per chunk; a group is one tile wide
  int64_t row_chunks, group_chunks;
};

Cut cut_by_shape(const GemmArgs& args, const BitKernel& kernel) {
  const int64_t k = std::max<int64_t>(args.k, 1), width = kernel.panels * kPanelRows, groups = ceil_div(args.n, width);
  Cut cut;
  cut.rows =
      std::clamp(kRowBlockBits / k / kMaxTileRows * kMaxTileRows, kMinChunkRows, std::max(args.m, kMinChunkRows));
  // Rows are cut further only if cutting columns alone does not give tasks of the desired size.
  cut.rows =
      std::min(cut.rows, std::max(kMinChunkRows, round_up(ceil_div(kChunkMultiplyAdds, width * k), kMaxTileRows)));
  cut.groups = std::clamp<int64_t>(ceil_div(kChunkMultiplyAdds, cut.rows * width * k), 1, groups);
  cut.row_chunks = ceil_div(args.m, cut.rows);
  cut.group_chunks = ceil_div(groups, cut.groups);
  return cut;
}

template <typename Dot>
struct Product {
  const GemmArgs& args;
  const BitKernel& kernel;
  Cut cut;
  const uint32_t* a[2];
  const uint32_t* b[2];
  int64_t a_step, b_step, words;
  uint32_t tail;
  bool direct;

  Product(const GemmArgs& args_in, const BitKernel& kernel_in)
      : args(args_in), kernel(kernel_in), cut(cut_by_shape(args_in, kernel_in)) {
    a[0] = static_cast<const uint32_t*>(args.a.data);
    b[0] = static_cast<const uint32_t*>(args.b.data);
    a_step = args.k == 0 ? 0 : Dot::kPlanesA == 1 ? args.a.stride / 4 : 2 * plane_words(args.k);
    b_step = panel_words(args.k) * kPanelRows;
    a[1] = Dot::kPlanesA == 1 ? nullptr : a[0] + args.m * a_step;
    b[1] = Dot::kPlanesB == 1 ? nullptr : b[0] + panel_count(args.n) * b_step;
    words = args.k / 32;
    tail = static_cast<uint32_t>((uint64_t{1} << (args.k % 32)) - 1);
    direct = kernel.direct && args.c_dtype == dtypes::fp32 && !args.accumulate;
  }

  int32_t base_of_row(int64_t i) const {
    if constexpr (Dot::kPlanesA == 1) return static_cast<int32_t>(args.k);
    if constexpr (Dot::kPlanesB == 2) return 0;
    int32_t count = kernel.count_row(a[0] + i * a_step, words, tail);
    if constexpr (Dot::kSums == 2) count += Dot::kHigh * kernel.count_row(a[1] + i * a_step, words, tail);
    return -count;
  }

  void run_chunk(int64_t chunk) const {
    const int64_t i0 = chunk / cut.group_chunks * cut.rows, i1 = std::min(args.m, i0 + cut.rows);
    const int64_t first = chunk % cut.group_chunks * cut.groups * kernel.panels;
    const int64_t last = std::min(panel_count(args.n), first + cut.groups * kernel.panels);
    // Row bases and scales are computed for a strip of rows at a time, so that no memory needs to be allocated.
    for (int64_t s0 = i0; s0 < i1; s0 += kStrip) {
      const int64_t s1 = std::min(i1, s0 + kStrip);
      int32_t base[kStrip];
      float sa[kStrip];
      for (int64_t i = s0; i < s1; ++i) {
        base[i - s0] = base_of_row(i);
        sa[i - s0] = free_scale(args.a, i);
      }
      for (int64_t p = first; p < last; p += kernel.panels)
        run_group(s0, s1, p, std::min<int64_t>(kernel.panels, last - p), base, sa);
    }
  }

 private:
  static constexpr int64_t kStrip = 1024;
  static constexpr int64_t kAhead = 2;  // tiles

  // Prefetches lines of C for a later tile: a store that misses L2 costs as much as a third of a tile of k = 1024.
  void fetch_output(int64_t i, int64_t end, int64_t j0, int64_t columns) const {
    constexpr int64_t kLineFloats = 16;
    const int64_t last = std::min(end, i + kernel.rows);
    for (; i < last; ++i) {
      const float* row = static_cast<const float*>(args.c) + i * args.ldc + j0;
      for (int64_t j = 0; j < columns; j += kLineFloats) __builtin_prefetch(row + j, 1);
    }
  }

  // Multiplies rows [i0, i1) of A with `panels` panels from `panel` on.
  void run_group(int64_t i0, int64_t i1, int64_t panel, int64_t panels, const int32_t* base, const float* sa) const {
    int32_t dots[kMaxTileRows * kMaxTileColumns];
    float sb[kMaxTileColumns] = {}, bias[kMaxTileColumns] = {};
    const int64_t j0 = panel * kPanelRows, columns = std::min(panels * kPanelRows, args.n - j0);
    BitTile tile{};
    for (int p = 0; p < Dot::kPlanesB; ++p) tile.b[p] = b[p] + panel * b_step;
    tile.a_step = a_step;
    tile.b_step = b_step;
    tile.words = words;
    tile.tail = tail;
    tile.dots = dots;
    tile.direct = direct;
    tile.ldc = args.ldc;
    tile.columns = columns;
    tile.sb = sb;
    if (direct) {
      for (int64_t j = 0; j < columns; ++j) sb[j] = free_scale(args.b, j0 + j);
      if (args.bias != nullptr) {
        std::copy(args.bias + j0, args.bias + j0 + columns, bias);
        tile.bias = bias;
      }
    }
    for (int64_t i = i0; i < i1; i += kernel.rows) {
      const int64_t rows = std::min<int64_t>(kernel.rows, i1 - i);
      for (int p = 0; p < Dot::kPlanesA; ++p) tile.a[p] = a[p] + i * a_step;
      tile.base = base + (i - i0);
      tile.sa = sa + (i - i0);
      if (direct) {
        tile.c = static_cast<float*>(args.c) + i * args.ldc + j0;
        fetch_output(i + kAhead * kernel.rows, i1, j0, columns);
      }
      kernel.tile(static_cast<int>(rows), static_cast<int>(panels), tile);
      if (direct) continue;
      for (int64_t r = 0; r < rows; ++r) finish_row(args, i + r, j0, columns, dots + r * kMaxTileColumns);
    }
  }
};

}  // namespace

template <>
bool popcount_supports<DotB1B1>(const GemmArgs& args) {
  return args.a.dtype.kind() == DTypeKind::kSign && args.b.dtype.kind() == DTypeKind::kSign && common_supports(args);
}
template <>
bool popcount_supports<DotTB1>(const GemmArgs& args) {
  return is_ternary(args.a.dtype) && args.b.dtype.kind() == DTypeKind::kSign && common_supports(args);
}
template <>
bool popcount_supports<DotTT>(const GemmArgs& args) {
  return is_ternary(args.a.dtype) && is_ternary(args.b.dtype) && common_supports(args);
}

template <>
bool popcount_supports<DotI2B1>(const GemmArgs& args) {
  const DTypeInfo& a = args.a.dtype.info();
  return a.bits == 2 && a.kind == DTypeKind::kInt && !is_ternary(args.a.dtype) &&
         args.b.dtype.kind() == DTypeKind::kSign && common_supports(args);
}
template <>
bool popcount_supports<DotU2B1>(const GemmArgs& args) {
  const DTypeInfo& a = args.a.dtype.info();
  return a.bits == 2 && a.kind == DTypeKind::kUint && args.b.dtype.kind() == DTypeKind::kSign && common_supports(args);
}

template <typename Dot>
void popcount_gemm(const GemmArgs& args, const BitKernel& kernel) {
  if (args.m == 0 || args.n == 0) return;
  const Product<Dot> product(args, kernel);
  parallel_for(product.cut.row_chunks * product.cut.group_chunks, [&](int64_t chunk) { product.run_chunk(chunk); });
}
template void popcount_gemm<DotB1B1>(const GemmArgs& args, const BitKernel& kernel);
template void popcount_gemm<DotTB1>(const GemmArgs& args, const BitKernel& kernel);
template void popcount_gemm<DotTT>(const GemmArgs& args, const BitKernel& kernel);
template void popcount_gemm<DotI2B1>(const GemmArgs& args, const BitKernel& kernel);
template void popcount_gemm<DotU2B1>(const GemmArgs& args, const BitKernel& kernel);

double popcount_cost(const GemmArgs& args, const BitKernel& kernel, double gmacs) {
  constexpr double kCall = 150, kTile = 12;  // per tile: set-up and store
  const double columns = static_cast<double>(round_up(args.n, kPanelRows)), m = static_cast<double>(args.m);
  const double tiles =
      static_cast<double>(ceil_div(args.m, kernel.rows) * ceil_div(args.n, kernel.panels * kPanelRows));
  return kCall + kTile * tiles + m * columns * static_cast<double>(round_up(args.k, 32)) / gmacs;
}

}  // namespace bitgrad::kernels::gemm_detail
