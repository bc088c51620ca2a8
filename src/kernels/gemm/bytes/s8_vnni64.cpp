// The loops of the small-integer products with B in layout vnni64. A block of C is processed in groups of 64 columns.
// For each group, a block of k of B is unpacked to bytes (8-bit codes are read in place) and multiplied with all rows
// of the block, which stay in L2. Meanwhile the next part of B is prefetched. A is read in place, or expanded for one
// slab of k.
#include "kernels/gemm/bytes/s8_vnni64.h"

#include <algorithm>
#include <cmath>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/gemm/bytes/s8_expand.h"
#include "kernels/gemm/common/epilogue.h"
#include "kernels/gemm/common/operands.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int64_t kS8PanelMaxRows = 256;                  // of a block of C
constexpr int64_t kS8PanelChunkBytes = int64_t{1} << 19;  // hide the cost of a parallel loop

// How a product is cut: blocks of C, slabs and blocks of k, and which operands are unpacked or read in place; all that
// is the same for all blocks of C.
struct S8PanelPlan {
  const GemmArgs& args;
  const S8PanelKernel& kernel;
  int bits, fields, shift;  // of B; f = 1 << shift
  int64_t lowest;           // lowest code of B: c
  int max;                  // largest u
  ByteRange a;
  bool in_place;  // whether A is read in place
  bool several;   // whether there are several slabs
  bool opens;     // whether B is unpacked to bytes, unless the last group is narrow
  bool direct;
  int64_t slab, depth, rows, columns;
  int64_t panels, steps;
  bool beta_varies, alphas;  // whether beta varies by column; whether any alpha is nonzero
  const int32_t* column_sums;

  S8PanelPlan(const GemmArgs& args_in, const S8PanelKernel& kernel_in);
  int64_t alpha(int64_t i) const {
    return a.shift - (args.a.scale.zero == nullptr ? 0 : args.a.scale.zero[free_param(args.a, i)]);
  }
  int64_t beta(int64_t j) const {
    return lowest - (args.b.scale.zero == nullptr ? 0 : args.b.scale.zero[free_param(args.b, j)]);
  }
};

constexpr int64_t kMaxRowsExpanded = 128;                          // of a block of C
constexpr int64_t kMaxColumnsWithSums = 1024;                      // of a block of C whose sums are kept between slabs
constexpr int64_t kSlab = 5120, kSlabWithSums = 2048;              // k for which the rows of a block stay in L2
constexpr int64_t kDepth = 5120;                                   // k per block of B: 6 rows of A fit beside it in L1
constexpr int64_t kDepthOpened = 2048, kDepthOpenedFewRows = 512;  // the same for unpacked codes
constexpr int64_t kFewRows = 24, kDepthFewRows = 512;              // below this B is used as fast as it can be read
constexpr int64_t kChunkMultiplyAdds = int64_t{1} << 24;           // hides the cost of a parallel loop
constexpr int64_t kColumnsExpanded = 512;                          // number that shares one expansion of A

// Splits `total` into equal pieces of at most `upper`, rounded up to 32 codes, which fill a line of B at any width.
int64_t even_piece(int64_t total, int64_t upper) {
  return std::max<int64_t>(32, round_up(ceil_div(total, std::max<int64_t>(1, ceil_div(total, upper))), 32));
}

bool reads_in_place(const GemmArgs& args) {
  return args.a.dtype.kind() == DTypeKind::kInt && args.a.dtype.bits() == 8 && !args.a.k_major && args.k % 4 == 0;
}

// Columns per block of C: enough work for a chunk of a parallel loop.
int64_t block_columns(const GemmArgs& args, int64_t rows, bool in_place, bool several, int bits) {
  const int64_t k = std::max<int64_t>(1, args.k);
  const int64_t by_work = ceil_div(kChunkMultiplyAdds, rows * k), by_bytes = ceil_div(kS8PanelChunkBytes * 8, k * bits);
  int64_t columns = round_up(std::min(by_work, by_bytes), kS8PanelColumns);
  if (!in_place) columns = std::max(columns, kColumnsExpanded);
  if (several) columns = std::min(columns, kMaxColumnsWithSums);
  return std::min(columns, round_up(args.n, kS8PanelColumns));
}

S8PanelPlan::S8PanelPlan(const GemmArgs& args_in, const S8PanelKernel& kernel_in)
    : args(args_in),
      kernel(kernel_in),
      bits(args.b.dtype.bits()),
      fields(vnni_fields(bits)),
      a(byte_range(args.a.dtype)),
      in_place(reads_in_place(args)) {
  const DTypeKind kind = args.b.dtype.kind();
  shift = kind == DTypeKind::kSign ? 1 : 0;
  lowest = kind == DTypeKind::kSign ? -1 : kind == DTypeKind::kInt ? -(int64_t{1} << (bits - 1)) : 0;
  max = (1 << bits) - 1;
  several = args.k > kSlab;
  slab = even_piece(args.k, !several ? kSlab : in_place ? kDepth : kSlabWithSums);
  rows = ceil_div(args.m, ceil_div(args.m, in_place && !several ? kS8PanelMaxRows : kMaxRowsExpanded));
  opens = fields != 1 && args.m > kernel.few_rows;
  depth = even_piece(slab, opens ? (rows <= kMaxRowsExpanded ? kDepthOpenedFewRows : kDepthOpened)
                           : fields == 1 && args.m <= kFewRows ? kDepthFewRows
                                                               : kDepth);
  columns = block_columns(args, rows, in_place, several, bits);
  direct = kernel.direct && args.c_dtype == dtypes::fp32;
  panels = panel_count(args.n);
  steps = vnni_steps(bits, args.k);
  beta_varies = args.b.scale.zero != nullptr && !args.b.scale.per_tensor();
  alphas = args.k > 0 && (a.shift != 0 || args.a.scale.zero != nullptr);
  column_sums = static_cast<const int32_t*>(args.b.data) + panels * steps * 16;
}

int32_t wrap(int64_t x) { return static_cast<int32_t>(static_cast<uint32_t>(static_cast<uint64_t>(x))); }

// Computes one block of C on one thread.
class Block {
 public:
  // row_sums: sums of the bytes of all rows of A, if A is read in place.
  Block(const S8PanelPlan& plan, const int32_t* row_sums, int64_t i0, int64_t j0)
      : plan_(plan),
        args_(plan.args),
        i0_(i0),
        j0_(j0),
        rows_(std::min(plan.rows, args_.m - i0)),
        columns_(std::min(plan.columns, args_.n - j0)),
        memory_(a_bytes() + opened_bytes() + sums_bytes()) {
    char* p = memory_.as<char>();
    a_ = reinterpret_cast<int8_t*>(p);
    opened_ = reinterpret_cast<uint8_t*>(p + a_bytes());
    sums_ = reinterpret_cast<int32_t*>(p + a_bytes() + opened_bytes());
    for (int64_t i = 0; i < rows_; ++i) row_sums_[i] = plan.in_place ? row_sums[i0 + i] : 0;
  }

  void run() {
    for (int64_t k0 = 0; k0 == 0 || k0 < args_.k; k0 += plan_.slab) {
      const int64_t length = std::min(plan_.slab, args_.k - k0);
      load_a(k0, length);
      if (k0 + length == args_.k) make_rows();
      for (int64_t j = 0; j < columns_; j += kS8PanelColumns) multiply_group(j, k0, length);
    }
  }

 private:
  int64_t a_bytes() const {
    return plan_.in_place ? 0 : round_up(plan_.rows * round_up(std::min(plan_.slab, args_.k), 8), 64);
  }
  int64_t opened_bytes() const {
    return plan_.fields == 1 ? 0 : kS8PanelColumns * round_up(std::min(plan_.depth, args_.k), 32);
  }
  int64_t sums_bytes() const { return plan_.rows * (plan_.several ? plan_.columns : kS8PanelColumns) * 4; }

  void load_a(int64_t k0, int64_t length) {
    if (plan_.in_place) {
      a_step_ = args_.a.stride;
      a_at_ = reinterpret_cast<const int8_t*>(stored_row(args_.a, i0_)) + k0;
      return;
    }
    a_step_ = round_up(length, 8);
    a_at_ = a_;
    for (int64_t s = 0; s < rows_; s += kStrip) {
      const int64_t count = std::min(kStrip, rows_ - s);
      expand_strip(args_.a, i0_ + s, count, k0, length, a_ + s * a_step_, a_step_);
      for (int64_t i = s; i < s + count; ++i) row_sums_[i] += plan_.kernel.row_sum(a_ + i * a_step_, length);
    }
  }

  // Prepares the corrections and scales of the rows.
  void make_rows() {
    for (int64_t i = 0; i < rows_; ++i) {
      const int64_t alpha = plan_.alpha(i0_ + i), sum = row_sums_[i] + args_.k * alpha;
      const int64_t minus = args_.row_minus == nullptr ? 0 : args_.row_minus[i0_ + i];
      row_by_[i] = wrap(sum);
      row_add_[i] = wrap((plan_.beta_varies ? 0 : sum * plan_.beta(0)) - minus);
      row_of_sums_[i] = wrap(alpha << plan_.shift);
      sa_[i] = free_scale(args_.a, i0_ + i);
    }
  }

  // Columns from j on of the block, over a slab of k.
  void multiply_group(int64_t j, int64_t k0, int64_t length) {
    const int64_t panel = (j0_ + j) / kPanelRows, panels = vnni_group_panels(panel, args_.n);
    const auto* group = static_cast<const uint8_t*>(args_.b.data) + vnni_group_start(plan_.bits, panel, args_.k);
    S8PanelTile tile{};
    tile.columns = std::min<int64_t>(kS8PanelColumns, args_.n - j0_ - j);
    tile.a_step = a_step_;
    int32_t* const sums = sums_ + (plan_.several ? j * plan_.rows : 0);
    float sb[kS8PanelColumns] = {}, bias[kS8PanelColumns] = {};
    int32_t beta[kS8PanelColumns] = {};
    for (int64_t k = 0; k == 0 || k < length; k += plan_.depth) {
      const int64_t depth = std::min(plan_.depth, length - k), done = k0 + k + depth;
      const int64_t steps = ceil_div(depth, 4 * plan_.fields);
      const uint8_t* const b = group + (k0 + k) / (4 * plan_.fields) * panels * 64;
      tile.units = ceil_div(depth, 4);
      tile.first = k0 + k == 0;
      tile.b = b;
      const bool closed = plan_.fields != 1 && !plan_.opens && panels == kVnniPanels;
      if (plan_.fields != 1 && !closed) {
        plan_.kernel.open(b, steps, panels, plan_.fields, opened_);
        tile.b = opened_;
      }
      if (done == args_.k) finish_columns(tile, j, sb, bias, beta);
      if (closed) {
        run_closed(tile, j, a_at_ + k, sums);
      } else {
        run_tiles(tile, j, a_at_ + k, sums, b + steps * panels * 64, steps * panels);
      }
      if (done == args_.k && !plan_.direct) finish_sums(tile, j, sums);
    }
  }

  void finish_columns(S8PanelTile& tile, int64_t j, float* sb, float* bias, int32_t* beta) const {
    tile.direct = plan_.direct;
    tile.accumulate = args_.accumulate;
    tile.shift = plan_.shift;
    tile.ldc = args_.ldc;
    for (int64_t c = 0; c < tile.columns; ++c) sb[c] = free_scale(args_.b, j0_ + j + c);
    tile.sb = sb;
    if (args_.bias != nullptr) {
      std::copy(args_.bias + j0_ + j, args_.bias + j0_ + j + tile.columns, bias);
      tile.bias = bias;
    }
    if (plan_.beta_varies) {
      for (int64_t c = 0; c < tile.columns; ++c) beta[c] = wrap(plan_.beta(j0_ + j + c));
      tile.column_by = beta;
    }
    if (plan_.alphas) tile.column_sums = plan_.column_sums + j0_ + j;
  }

  // Points the tile's output at C, from row i on.
  void set_output(S8PanelTile& tile, int64_t i, int64_t j) const {
    tile.c = static_cast<float*>(args_.c) + (i0_ + i) * args_.ldc + j0_ + j;
    tile.sa = sa_ + i;
    tile.row_add = row_add_ + i;
    tile.row_by = row_by_ + i;
    tile.row_of_sums = row_of_sums_ + i;
  }

  // One tile of few rows, with B packed as stored.
  void run_closed(S8PanelTile& tile, int64_t j, const int8_t* a, int32_t* sums) const {
    tile.a = a;
    tile.sums = sums;
    if (tile.direct) set_output(tile, 0, j);
    plan_.kernel.few_tile(static_cast<int>(rows_), plan_.fields, tile);
  }

  // All rows of the block. Prefetches `lines` lines from `ahead` on, spread over the tiles.
  void run_tiles(S8PanelTile& tile, int64_t j, const int8_t* a, int32_t* sums, const uint8_t* ahead, int64_t lines) {
    const int panels = static_cast<int>(ceil_div(tile.columns, kPanelRows));
    const int64_t tiles = ceil_div(rows_, plan_.kernel.rows), turns = std::max<int64_t>(1, tile.units / 4);
    const int64_t a_turn = ceil_div(lines, tiles * turns);
    for (int64_t q = 0, i = 0; q < tiles; ++q) {
      const int64_t rows = ceil_div(rows_ - i, tiles - q);
      tile.a = a + i * a_step_;
      tile.sums = sums + i * kS8PanelColumns;
      tile.ahead = ahead + q * turns * a_turn * 64;
      tile.ahead_lines = q * turns * a_turn < lines ? a_turn : 0;
      if (tile.direct) {
        set_output(tile, i, j);
        // The next tile of the group, or the first one of the next group.
        const bool end = i + rows == rows_;
        tile.c_ahead_rows = !end                             ? std::min<int64_t>(rows, rows_ - i - rows)
                            : j + kS8PanelColumns < columns_ ? rows
                                                             : 0;
        tile.c_ahead = static_cast<float*>(args_.c) + (i0_ + (end ? 0 : i + rows)) * args_.ldc + j0_ + j +
                       (end ? kS8PanelColumns : 0);
      }
      plan_.kernel.tile(static_cast<int>(rows), panels, plan_.max, tile);
      i += rows;
    }
  }

  // For kernels that do not write C themselves, and for other output dtypes.
  void finish_sums(const S8PanelTile& tile, int64_t j, const int32_t* sums) const {
    int32_t dots[kS8PanelColumns];
    for (int64_t i = 0; i < rows_; ++i, sums += kS8PanelColumns) {
      for (int64_t c = 0; c < tile.columns; ++c) {
        uint32_t dot = (static_cast<uint32_t>(sums[c]) << tile.shift) + static_cast<uint32_t>(row_add_[i]);
        if (tile.column_by != nullptr)
          dot += static_cast<uint32_t>(row_by_[i]) * static_cast<uint32_t>(tile.column_by[c]);
        if (tile.column_sums != nullptr)
          dot += static_cast<uint32_t>(row_of_sums_[i]) * static_cast<uint32_t>(tile.column_sums[c]);
        dots[c] = static_cast<int32_t>(dot);
      }
      finish_row(args_, i0_ + i, j0_ + j, tile.columns, dots);
    }
  }

  const S8PanelPlan& plan_;
  const GemmArgs& args_;
  const int64_t i0_, j0_, rows_, columns_;
  const Workspace memory_;
  int8_t* a_;
  uint8_t* opened_;
  int32_t* sums_;
  const int8_t* a_at_ = nullptr;
  int64_t a_step_ = 0;
  int32_t row_sums_[kS8PanelMaxRows], row_add_[kS8PanelMaxRows], row_by_[kS8PanelMaxRows],
      row_of_sums_[kS8PanelMaxRows];
  float sa_[kS8PanelMaxRows];
};

// Whether every sum of codes fits in int32.
bool codes_fit_int32(const GemmArgs& args) {
  return static_cast<double>(args.k) * static_cast<double>(byte_range(args.a.dtype).magnitude()) *
             static_cast<double>(byte_range(args.b.dtype).magnitude()) <=
         0x7FFFFFFFp0;
}

// Whether the required sums fit in int32, after zero points and row_minus are subtracted.
bool fits_int32(const GemmArgs& args) {
  return largest_sum(args, args.k, zero_range(args.a, args.m, args.k), zero_range(args.b, args.n, args.k)) <=
         0x7FFFFFFFp0;
}

}  // namespace

// Unpacks B to canonical codes and runs a kernel for those, which has 64-bit sums.
void gemm_from_canonical(const GemmArgs& args) {
  GemmArgs canonical = args;
  GemmOperand& b = canonical.b;
  const int64_t rows = b.k_major ? args.k : args.n, columns = b.k_major ? args.n : args.k;
  b.stride = row_bytes_memory(b.dtype, columns);
  const Workspace memory(rows * b.stride);
  b.layout.info().unpack(b.dtype, rows, columns, b.data, memory.as<char>(), b.stride);
  b.data = memory.as<char>();
  b.layout = layouts::canonical;
  gemm(canonical);
}

bool s8_panels_supports(const GemmArgs& args, bool b_k_major, const S8PanelKernel& kernel) {
  return has_small_integer_codes(args.a.dtype) && has_small_integer_codes(args.b.dtype) &&
         args.b.dtype.bits() <= kernel.bits && args.b.k_major == b_k_major &&
         integer_product(args) == IntegerProduct::kPlain && integer_output_supported(args) && codes_fit_int32(args);
}

void s8_panels_gemm(const GemmArgs& args, const S8PanelKernel& kernel) {
  if (args.m == 0 || args.n == 0) return;
  if (!fits_int32(args)) return gemm_from_canonical(args);
  const S8PanelPlan plan(args, kernel);
  const Workspace memory(args.m * 4);
  auto* const row_sums = memory.as<int32_t>();
  if (plan.in_place) {
    parallel_ranges(args.m, ceil_div(kS8PanelChunkBytes, std::max<int64_t>(1, args.k)),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i)
                        row_sums[i] = kernel.row_sum(reinterpret_cast<const int8_t*>(stored_row(args.a, i)), args.k);
                    });
  }
  const int64_t column_blocks = ceil_div(args.n, plan.columns);
  parallel_for(ceil_div(args.m, plan.rows) * column_blocks, [&](int64_t chunk) {
    Block(plan, row_sums, chunk / column_blocks * plan.rows, chunk % column_blocks * plan.columns).run();
  });
}

// Measured on a Sapphire Rapids core.
double s8_panels_cost(const GemmArgs& args, const S8PanelKernel& kernel) {
  constexpr double kCall = 400, kOutputDirect = 0.03, kOutput = 0.2, kExpand = 0.06, kByte = 0.03;
  const int fields = vnni_fields(args.b.dtype.bits());
  const bool in_place = reads_in_place(args);
  const double m = static_cast<double>(args.m), n = static_cast<double>(round_up(args.n, kPanelRows));
  const double k = static_cast<double>(round_up(args.k, 4)), work = m * n * k;
  const double blocks = static_cast<double>(ceil_div(args.m, in_place ? kS8PanelMaxRows : kMaxRowsExpanded));
  const double opened = fields == 1 || args.m <= kernel.few_rows ? 0 : kernel.rates.open * n * k * blocks;
  const double expanded = in_place ? 0 : kExpand * m * k * static_cast<double>(ceil_div(args.n, kColumnsExpanded));
  const double output = (kernel.direct && args.c_dtype == dtypes::fp32 ? kOutputDirect : kOutput) * m * n;
  return kCall + std::max(work / kernel.rates.gmacs[args.b.dtype.bits() - 1], kByte * n * k / fields) + opened +
         expanded + output;
}

}  // namespace bitgrad::kernels::gemm_detail
