// The products on the tile unit. For each chunk of columns and rows of the cut, the operands are packed in tile order,
// in parallel; then tasks over blocks of sums run.
#include "kernels/gemm/tiles/amx.h"

#include <algorithm>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/gemm/bytes/s8_expand.h"
#include "kernels/gemm/common/epilogue.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/floats/float_operand.h"
#include "kernels/gemm/kernels.h"
#include "kernels/gemm/tiles/amx_operand.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

// ---- how a product is cut for the tile unit: by shape and dtypes alone ----
// B's columns are processed in chunks (all of them, or as many as fit when canonical codes are packed), A's rows in
// blocks whose tiles fit in L2 beside the rest. If all of k does not fit for 32 rows, it is split into passes, and the
// sums wait in memory.

// What A is converted to.
enum class TileNumbers { kCodes, kHalves, kDigits };

struct TileCut {
  TileFormat format;
  TileProduct product;
  int parts;            // digits per value
  bool packs;           // whether B is packed during the call
  int64_t steps, pass;  // of k in all, and per pass
  int64_t rows;         // rows of A at a time, whole blocks
  int64_t columns;      // columns of B at a time

  TileCut(const GemmArgs& args, TileNumbers numbers, int parts);
  int64_t passes() const { return ceil_div(steps, pass); }
  int64_t sums_of_pair() const { return rows / kBlockSide * parts * kSumBytes; }
  int64_t bytes_of_a() const { return rows / kBlockSide * parts * pass * kStepBytes; }
  int64_t bytes_of_b(int64_t k) const {
    return packs ? ceil_div(columns, kTileRows) * packed_panel_bytes(format, k) : 0;
  }
  int64_t bytes_of_sums() const { return passes() > 1 ? ceil_div(columns, kBlockSide) * sums_of_pair() : 0; }
};

constexpr int64_t kPackedBytes = int64_t{2} << 20;  // of B, if packed during the call
constexpr int64_t kColumnsOfPasses = 2048;          // columns whose sums are kept between passes

constexpr StepOrder kOrders[kTileFormats] = {make_step_order(TileFormat::kSign),  make_step_order(TileFormat::kBits1),
                                             make_step_order(TileFormat::kBits2), make_step_order(TileFormat::kBits4),
                                             make_step_order(TileFormat::kBytes), make_step_order(TileFormat::kHalf)};

// Budget for A, which shares L2 with a pair of panels or the packed part of B: half of L2's capacity, or all of it
// where reading wide codes of B once per block of A costs more.
int64_t most_bytes_of_a(TileFormat format, bool packs) {
  return int64_t{!packs && format_bits(format) >= 4 ? 1024 : 512} << 10;
}

bool is_raw_byte(DType dtype) { return byte_range(dtype).shift != 0; }

TileFormat format_of(const GemmArgs& args, TileNumbers numbers) {
  const DType b = args.b.dtype;
  if (numbers == TileNumbers::kHalves) return TileFormat::kHalf;
  if (b.kind() == DTypeKind::kSign) return TileFormat::kSign;
  // Canonical codes of more than one bit are packed as bytes. Digits have no loops for other fields.
  const int bits = args.b.layout == layouts::canonical && b.bits() > 1 ? 8 : b.bits();
  constexpr TileFormat kByBits[9] = {TileFormat::kBytes, TileFormat::kBits1, TileFormat::kBits2,
                                     TileFormat::kBytes, TileFormat::kBits4, TileFormat::kBytes,
                                     TileFormat::kBytes, TileFormat::kBytes, TileFormat::kBytes};
  const TileFormat format = kByBits[bits];
  return numbers == TileNumbers::kDigits && format != TileFormat::kSign ? TileFormat::kBytes : format;
}

TileProduct product_of(const GemmArgs& args, TileNumbers numbers, TileFormat format) {
  if (numbers == TileNumbers::kHalves) return TileProduct::kBf16;
  const bool a = numbers == TileNumbers::kCodes && is_raw_byte(args.a.dtype);
  const bool b = format == TileFormat::kBytes && is_raw_byte(args.b.dtype);
  constexpr TileProduct kBySign[2][2] = {{TileProduct::kSS, TileProduct::kSU}, {TileProduct::kUS, TileProduct::kUU}};
  return kBySign[a][b];
}

TileCut::TileCut(const GemmArgs& args, TileNumbers numbers, int parts_in)
    : format(format_of(args, numbers)),
      product(product_of(args, numbers, format)),
      parts(parts_in),
      packs(args.b.layout == layouts::canonical) {
  steps = ceil_div(args.k, step_depth(format));
  const int64_t most_of_a = most_bytes_of_a(format, packs);
  pass = std::min(steps, most_of_a / (kStepBytes * parts));
  rows = std::min(round_up(args.m, kBlockSide), most_of_a / (pass * kStepBytes * parts) * kBlockSide);
  columns = args.n;
  if (packs) {
    const int64_t unit = pack_columns_unit(format);
    const int64_t upper = kPackedBytes / (packed_panel_bytes(format, args.k) / kTileRows);
    columns = std::min(columns, std::max(unit, upper / unit * unit));
  }
  if (passes() > 1) columns = std::min(columns, kColumnsOfPasses);
}

// Valid for the lifetime of the program.
const uint8_t* step_order_of(TileFormat format) { return kOrders[static_cast<size_t>(format)].data(); }

constexpr double kTaskMultiplyAdds = 0x1p26;          // some 30 us
constexpr int64_t kStreamedBytes = int64_t{1} << 20;  // a larger C does not stay in L2 anyway

class Product {
 public:
  Product(const GemmArgs& args, const AmxIsa& isa, TileNumbers numbers, int parts)
      : args_(args),
        isa_(isa),
        numbers_(numbers),
        cut_(args, numbers, parts),
        loop_(isa.loop(cut_.format, cut_.product, parts)),
        memory_(cut_.bytes_of_a() + cut_.bytes_of_b(args.k) + cut_.bytes_of_sums() +
                cut_.rows * static_cast<int64_t>(sizeof(double))) {
    a_ = memory_.as<uint8_t>();
    b_ = a_ + cut_.bytes_of_a();
    sums_ = b_ + cut_.bytes_of_b(args.k);
    units_ = reinterpret_cast<double*>(sums_ + cut_.bytes_of_sums());
    // A scale that is already part of A's values is not applied again.
    const bool folded = numbers == TileNumbers::kDigits && fold_of(args) == Fold::kIntoA;
    constant_scale_of_b_ = folded || args.b.scale.scale == nullptr || args.b.scale.per_tensor();
    std::fill(constant_scale_, constant_scale_ + kBlockSide, folded ? 1 : free_scale(args.b, 0));
  }

  void run() {
    for (int64_t j0 = 0; j0 < args_.n; j0 += cut_.columns) {
      const int64_t columns = std::min(cut_.columns, args_.n - j0);
      if (cut_.packs) pack(j0, columns);
      for (int64_t i0 = 0; i0 < args_.m; i0 += cut_.rows) {
        const int64_t rows = std::min(cut_.rows, args_.m - i0);
        for (int64_t pass = 0; pass < cut_.passes(); ++pass) {
          put_rows(i0, rows, pass);
          multiply(i0, rows, j0, columns, pass);
        }
      }
    }
  }

 private:
  // Where the blocks of a task begin.
  struct Origin {
    const Product& product;
    int64_t i0, j0, unit;
  };

  void pack(int64_t j0, int64_t columns) {
    const int64_t panel = packed_panel_bytes(cut_.format, args_.k);
    const int64_t unit = pack_columns_unit(cut_.format);
    parallel_for(ceil_div(columns, unit), [&](int64_t chunk) {
      const int64_t j = chunk * unit;
      pack_columns(args_, isa_, cut_.format, j0 + j, std::min(unit, columns - j), b_ + j / kTileRows * panel);
    });
  }

  void put_rows(int64_t i0, int64_t rows, int64_t pass) {
    const int64_t depth_of_step = step_depth(cut_.format), k0 = pass * cut_.pass * depth_of_step;
    const uint8_t* order = step_order_of(cut_.format);
    // k-major A is read in wider pieces.
    const int64_t unit = args_.a.k_major ? kMostRowsOfPut : kBlockSide;
    parallel_for(ceil_div(rows, unit), [&](int64_t piece) {
      const int64_t row = piece * unit;
      const BlockOfA from{args_,
                          isa_,
                          order,
                          i0 + row,
                          std::min(unit, rows - row),
                          k0,
                          std::min(cut_.pass * depth_of_step, args_.k - k0),
                          cut_.parts * part_bytes(pass)};
      uint8_t* to = a_ + row / kBlockSide * from.block_bytes;
      if (numbers_ == TileNumbers::kCodes) return put_codes(from, to);
      if (numbers_ == TileNumbers::kHalves) return put_halves(from, to);
      if (pass == 0) find_units(from, cut_.parts, units_ + row);
      put_digits(from, cut_.parts, units_ + row, part_bytes(pass), to);
    });
  }

  int64_t steps_of(int64_t pass) const { return std::min(cut_.pass, cut_.steps - pass * cut_.pass); }
  int64_t part_bytes(int64_t pass) const { return steps_of(pass) * kStepBytes; }

  void multiply(int64_t i0, int64_t rows, int64_t j0, int64_t columns, int64_t pass) {
    const int64_t blocks = ceil_div(rows, kBlockSide), pairs = ceil_div(columns, kBlockSide);
    const double work = static_cast<double>(blocks * pairs * kBlockSide * kBlockSide * cut_.parts) *
                        static_cast<double>(steps_of(pass) * step_depth(cut_.format));
    const int64_t wanted = std::max<int64_t>(1, static_cast<int64_t>(work / kTaskMultiplyAdds));
    const int64_t pairs_of_task = ceil_div(pairs, std::min(wanted, pairs));
    const int64_t pair_tasks = ceil_div(pairs, pairs_of_task);
    const int64_t blocks_of_task = ceil_div(blocks, std::min(ceil_div(wanted, pair_tasks), blocks));
    parallel_for(pair_tasks * ceil_div(blocks, blocks_of_task), [&](int64_t task) {
      const int64_t block = task / pair_tasks * blocks_of_task, pair = task % pair_tasks * pairs_of_task;
      run_task(i0, rows, j0, columns, pass, block, std::min(blocks_of_task, blocks - block), pair,
               std::min(pairs_of_task, pairs - pair));
    });
  }

  void run_task(int64_t i0, int64_t rows, int64_t j0, int64_t columns, int64_t pass, int64_t block, int64_t blocks,
                int64_t pair, int64_t pairs) const {
    TileTask task{};
    task.a = a_ + block * cut_.parts * part_bytes(pass);
    task.blocks = blocks;
    task.half_block = rows - (block + blocks - 1) * kBlockSide <= kTileRows;
    task.steps = steps_of(pass);
    set_panels(task, j0, pair, pass);
    task.panels = std::min(2 * pairs, ceil_div(columns, kTileRows) - 2 * pair);
    task.unsigned_fields = args_.b.dtype.kind() == DTypeKind::kUint;
    if (cut_.passes() > 1) {
      task.sums_stride = cut_.sums_of_pair();
      task.sums = sums_ + pair * task.sums_stride + block * cut_.parts * kSumBytes;
      task.resume = pass > 0;
    }
    const Origin origin{*this, i0 + block * kBlockSide, j0 + pair * kBlockSide, block * kBlockSide};
    if (pass + 1 == cut_.passes()) {
      using Finish = void (*)(const void*, int64_t, int64_t, const uint8_t*, int, int);
      constexpr Finish kFinish[] = {&finish_codes, &finish_halves, &finish_digits};
      task.finish = kFinish[static_cast<size_t>(numbers_)];
      task.context = &origin;
      set_direct_rows(task.direct, origin);
      const int64_t size = args_.c_dtype.bits() / 8;
      task.c = static_cast<const uint8_t*>(args_.c) + (origin.i0 * args_.ldc + origin.j0) * size;
      task.c_row = args_.ldc * size;
      task.c_pair = kBlockSide * size;
    }
    loop_(task);
  }

  void set_direct_rows(DirectRows& out, const Origin& at) const {
    if (args_.c_dtype != dtypes::fp32 || args_.row_minus != nullptr) return;
    static constexpr float kOne = 1;
    const ScaleMap& a = args_.a.scale;
    const bool codes = numbers_ == TileNumbers::kCodes && a.scale != nullptr;
    out.c = static_cast<float*>(args_.c) + at.i0 * args_.ldc + at.j0;
    out.stride = args_.ldc;
    out.rows = args_.m - at.i0;
    out.columns = args_.n - at.j0;
    out.sa_step = codes && !a.per_tensor() ? 1 : 0;
    out.sa = codes ? a.scale + at.i0 * out.sa_step : &kOne;
    out.sb = scales(at.j0);
    out.sb_step = constant_scale_of_b_ ? 0 : 1;
    out.bias = args_.bias == nullptr ? nullptr : args_.bias + at.j0;
    out.unit = units_ + at.unit;
    out.accumulate = args_.accumulate;
    out.streamed = !args_.accumulate && args_.m * args_.n * 4 > kStreamedBytes && args_.ldc % 16 == 0 &&
                   reinterpret_cast<uintptr_t>(args_.c) % 64 == 0;
  }

  void set_panels(TileTask& task, int64_t j0, int64_t pair, int64_t pass) const {
    const int64_t step = panel_step_bytes(cut_.format);
    const uint8_t* panels = b_;
    if (cut_.packs) {
      task.panel_stride = packed_panel_bytes(cut_.format, args_.k);
    } else {
      const bool words = args_.b.layout == layouts::panels16;
      const int64_t count = words ? panel_words(args_.k) : tile_words(args_.b.dtype.bits(), args_.k);
      task.panel_stride = count * kTileBytes;
      task.odd_words = words && count % 2 != 0 && pass + 1 == cut_.passes();
      panels = static_cast<const uint8_t*>(args_.b.data) + j0 / kTileRows * task.panel_stride;
    }
    task.b = panels + 2 * pair * task.panel_stride + pass * cut_.pass * step;
  }

  // ---- finishing: rows [r0, r1) of a block of sums ----
  template <typename Row>
  static void for_rows(const Origin& at, int64_t block, int64_t pair, int r0, int r1, Row&& row) {
    const GemmArgs& args = at.product.args_;
    const int64_t i = at.i0 + block * kBlockSide, j = at.j0 + pair * kBlockSide;
    const int64_t columns = std::min<int64_t>(kBlockSide, args.n - j);
    for (int r = r0; r < std::min<int64_t>(r1, args.m - i); ++r) row(r, i + r, j, columns);
  }

  // B's scales of columns j, j + 1, ...
  const float* scales(int64_t j) const { return constant_scale_of_b_ ? constant_scale_ : args_.b.scale.scale + j; }

  static void finish_codes(const void* context, int64_t block, int64_t pair, const uint8_t* sums, int r0, int r1) {
    const Origin& at = *static_cast<const Origin*>(context);
    const Product& self = at.product;
    const GemmArgs& args = self.args_;
    for_rows(at, block, pair, r0, r1, [&](int r, int64_t i, int64_t j, int64_t columns) {
      const auto* acc = reinterpret_cast<const int32_t*>(sums) + r * kBlockSide;
      if (args.row_minus == nullptr) return finish_row(args, i, j, columns, acc);
      int64_t wide[kBlockSide];
      for (int64_t c = 0; c < columns; ++c) {
        if (__builtin_sub_overflow(int64_t{acc[c]}, args.row_minus[i], &wide[c]))
          wide[c] = args.row_minus[i] < 0 ? INT64_MAX : INT64_MIN;
      }
      finish_row(args, i, j, columns, wide);
    });
  }

  static void finish_halves(const void* context, int64_t block, int64_t pair, const uint8_t* sums, int r0, int r1) {
    const Origin& at = *static_cast<const Origin*>(context);
    for_rows(at, block, pair, r0, r1, [&](int r, int64_t i, int64_t j, int64_t columns) {
      const float* sum = reinterpret_cast<const float*>(sums) + r * kBlockSide;
      at.product.finish_floats(i, j, columns, sum, at.product.scales(j));
    });
  }

  static void finish_digits(const void* context, int64_t block, int64_t pair, const uint8_t* sums, int r0, int r1) {
    const Origin& at = *static_cast<const Origin*>(context);
    const Product& self = at.product;
    for_rows(at, block, pair, r0, r1, [&](int r, int64_t i, int64_t j, int64_t columns) {
      float sum[kBlockSide];
      const double unit = self.units_[at.unit + block * kBlockSide + r];
      self.isa_.join_digits(sums + r * kBlockSide * 4, self.cut_.parts, unit, sum);
      self.finish_floats(i, j, columns, sum, self.scales(j));
    });
  }

  void finish_floats(int64_t i, int64_t j, int64_t columns, const float* sum, const float* scale) const {
    float y[kBlockSide];
    for (int64_t c = 0; c < columns; ++c) y[c] = sum[c] * scale[c];
    finish_row(args_, i, j, columns, y);
  }

  const GemmArgs& args_;
  const AmxIsa& isa_;
  const TileNumbers numbers_;
  const TileCut cut_;
  void (*const loop_)(const TileTask&);
  const Workspace memory_;
  uint8_t *a_, *b_, *sums_;
  double* units_;
  bool constant_scale_of_b_;
  float constant_scale_[kBlockSide];
};

void run_product(const GemmArgs& args, const AmxIsa& isa, TileNumbers numbers, int parts) {
  if (args.m <= 0 || args.n <= 0) return;
  Product(args, isa, numbers, parts).run();
}

}  // namespace

void amx_int_gemm(const GemmArgs& args, const AmxIsa& isa) {
  if (args.k == 0) return gemm_impl::gemm_int_scalar(args);
  run_product(args, isa, TileNumbers::kCodes, 1);
}
void amx_bf16_gemm(const GemmArgs& args, const AmxIsa& isa) {
  if (args.k == 0) return gemm_impl::gemm_f32_chain512_scalar(args);
  run_product(args, isa, TileNumbers::kHalves, 1);
}
void amx_digits_gemm(const GemmArgs& args, int parts, const AmxIsa& isa) {
  if (args.k == 0) return gemm_impl::gemm_f32_chain512_scalar(args);
  run_product(args, isa, TileNumbers::kDigits, parts);
}

}  // namespace bitgrad::kernels::gemm_detail
