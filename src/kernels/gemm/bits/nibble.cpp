// The nibble counts: the plan of a product, reading rows of bits, packing words of look-ups, building tables, counting,
// writing the output.
#include "kernels/gemm/bits/nibble.h"

#include <algorithm>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "dtype/bit_tricks.h"
#include "kernels/gemm/bits/popcount.h"
#include "kernels/gemm/common/epilogue.h"
#include "kernels/gemm/common/operands.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int64_t kNibbleTransposed = 64;  // rows of counts that are transposed together

// One way to compute the product: tables from one operand, look-ups by the other.
struct NibblePlan {
  bool tables_of_b;
  bool ternary_tables;
  int64_t lanes, rows;  // rows of the operand that provides the tables, and of the other one
  int planes;           // words looked up per 60 bits
  int64_t groups;
  int64_t blocks;                  // of lanes
  int64_t chunk_rows, row_chunks;  // of the rows that are looked up
  double ns;
};

// What to read from the two planes of ternary codes: p0 (nonzero) and p1 (negative).
enum class Planes {
  kBits,     // one plane as it is
  kSigns,    // t >= 0, t > 0
  kProducts  // what counts for a 0 bit of the other operand, t < 0, and for a 1 bit, t > 0
};

// Rows of bits in the layouts of A (rows of words) and of B (panels of 16 rows).
struct BitRows {
  const uint8_t* plane[2];
  int64_t stride;  // bytes between rows or panels
  bool panels;
  int64_t rows, k;

  // Reads words [w0, w0 + 15) of rows [r0, r0 + 16) as [word][row], words `step` apart. r0 is a multiple of 16. Bits
  // beyond k are 0; rows past the end are read as zeros (with kSigns: t >= 0 up to k).
  void read(Planes planes, int64_t r0, int64_t w0, int64_t step, uint32_t* first, uint32_t* second) const;

 private:
  uint32_t mask(int64_t w) const;
  void read_plane(int p, int64_t r0, int64_t w0, int64_t words, int64_t step, uint32_t* out) const;
};

void BitRows::read(Planes planes, int64_t r0, int64_t w0, int64_t step, uint32_t* first, uint32_t* second) const {
  const int64_t words = std::min(kPieceWords, panel_words(k) - w0);
  read_plane(0, r0, w0, words, step, first);
  if (planes == Planes::kBits) return;
  read_plane(1, r0, w0, words, step, second);
  for (int64_t w = 0; w < words; ++w) {
    const uint32_t keep = mask(w0 + w);
    for (int64_t l = 0; l < kPanelRows; ++l) {
      uint32_t &x = first[w * step + l], &y = second[w * step + l];
      const uint32_t p0 = x, negative = p0 & y;
      x = planes == Planes::kSigns ? ~negative & keep : negative;
      y = p0 & ~y;
    }
  }
}

uint32_t BitRows::mask(int64_t w) const {
  return static_cast<uint32_t>(detail::low_mask(std::min<int64_t>(k - 32 * w, 32)));
}

void BitRows::read_plane(int p, int64_t r0, int64_t w0, int64_t words, int64_t step, uint32_t* out) const {
  const int64_t count = std::min(kPanelRows, rows - r0);
  if (words < kPieceWords || count < kPanelRows)
    for (int64_t w = 0; w < kPieceWords; ++w) std::fill(out + w * step, out + w * step + kPanelRows, 0u);
  if (words <= 0 || count <= 0) return;
  if (panels) {
    const auto* lines = reinterpret_cast<const uint32_t*>(plane[p] + r0 / kPanelRows * stride) + w0 * kPanelRows;
    for (int64_t w = 0; w < words; ++w) std::copy_n(lines + w * kPanelRows, count, out + w * step);
  } else {
    for (int64_t l = 0; l < count; ++l) {
      const auto* row = reinterpret_cast<const uint32_t*>(plane[p] + (r0 + l) * stride) + w0;
      for (int64_t w = 0; w < words; ++w) out[w * step + l] = row[w];
    }
  }
  if (32 * (w0 + words) > k) {
    uint32_t* tail = out + (words - 1) * step;
    for (int64_t l = 0; l < count; ++l) tail[l] &= mask(w0 + words - 1);
  }
}

BitRows rows_of_a(const GemmArgs& args, bool ternary) {
  const auto* data = static_cast<const uint8_t*>(args.a.data);
  const int64_t stride = ternary ? 8 * plane_words(args.k) : args.a.stride;
  return {{data, ternary ? data + args.m * stride : nullptr}, stride, false, args.m, args.k};
}
BitRows rows_of_b(const GemmArgs& args, bool ternary) {
  const auto* data = static_cast<const uint8_t*>(args.b.data);
  const int64_t stride = panel_words(args.k) * kPanelRows * 4;
  return {{data, ternary ? data + panel_count(args.n) * stride : nullptr}, stride, true, args.n, args.k};
}

constexpr int64_t kByteLimit = 255;
constexpr int64_t kMaxK = 32767;    // so that two counts per k fit in 16 bits
constexpr int64_t kMaxRows = 1024;  // per chunk: its counts stay in L2

NibblePlan plan_with(const GemmArgs& args, const NibbleKernel& kernel, NibbleDot dot, bool tables_of_b) {
  NibblePlan p{};
  p.tables_of_b = tables_of_b;
  p.ternary_tables = tables_of_b ? dot.ternary_b : dot.ternary_a;
  p.lanes = tables_of_b ? args.n : args.m;
  p.rows = tables_of_b ? args.m : args.n;
  p.planes = (tables_of_b ? dot.ternary_a : dot.ternary_b) ? 2 : 1;
  p.groups = ceil_div(args.k, kNibbleGroup);
  p.blocks = ceil_div(p.lanes, kernel.lanes);
  p.row_chunks = ceil_div(p.rows, kMaxRows);
  p.chunk_rows = p.row_chunks == 0 ? 0 : round_up(ceil_div(p.rows, p.row_chunks), kNibbleTransposed);
  // Measured on a Sapphire Rapids core at 3 GHz.
  constexpr double kCall = 600, kWord = 0.6, kSignWord = 1.7, kTernaryTables = 2.4, kOutput = 0.3;
  const double blocks = static_cast<double>(p.blocks), rows = static_cast<double>(p.rows);
  const double groups = static_cast<double>(p.groups), planes = p.planes, width = static_cast<double>(kernel.lanes);
  const double tables = blocks * static_cast<double>(p.row_chunks) * groups * (p.ternary_tables ? kTernaryTables : 1);
  p.ns = kCall + blocks * rows * groups * planes * width * kNibbleGroup / kernel.gmacs + tables * kernel.ns_of_group +
         rows * groups * planes * (p.planes == 2 ? kSignWord : kWord) + blocks * width * rows * kOutput;
  return p;
}

// The cheaper of the two ways to assign the operands.
NibblePlan nibble_plan(const GemmArgs& args, const NibbleKernel& kernel, NibbleDot dot) {
  const NibblePlan a = plan_with(args, kernel, dot, false), b = plan_with(args, kernel, dot, true);
  return a.ns < b.ns ? a : b;
}

class Product {
 public:
  Product(const GemmArgs& args, const NibbleKernel& kernel, NibbleDot dot)
      : args_(args),
        kernel_(kernel),
        plan_(nibble_plan(args, kernel, dot)),
        lanes_(plan_.tables_of_b ? rows_of_b(args, dot.ternary_b) : rows_of_a(args, dot.ternary_a)),
        rows_(plan_.tables_of_b ? rows_of_a(args, dot.ternary_a) : rows_of_b(args, dot.ternary_b)),
        words_(round_up(plan_.groups, kPieceGroups) * plan_.planes * round_up(plan_.rows, kPanelRows) * 8),
        direct_(args.c_dtype == dtypes::fp32 && !args.accumulate) {}

  void run() {
    parallel_ranges(plan_.rows, kNibbleTransposed, [&](int64_t begin, int64_t end) { fill_words(begin, end); });
    parallel_for(plan_.row_chunks * plan_.blocks, [&](int64_t chunk) {
      const int64_t first = chunk / plan_.blocks * plan_.chunk_rows;
      run_chunk(first, std::min(plan_.rows, first + plan_.chunk_rows), chunk % plan_.blocks * kernel_.lanes);
    });
  }

 private:
  // Writes 60 bits of every row in [begin, end), as [group][plane][row].
  void fill_words(int64_t begin, int64_t end) const {
    const int64_t stride = round_up(plan_.rows, kPanelRows);
    const Planes planes = plan_.planes == 2 ? Planes::kSigns : Planes::kBits;
    alignas(64) uint32_t words[2][kPieceWords * kPanelRows];
    for (int64_t r = begin; r < end; r += kPanelRows) {
      for (int64_t g = 0; g < plan_.groups; g += kPieceGroups) {
        rows_.read(planes, r, g / kPieceGroups * kPieceWords, kPanelRows, words[0], words[1]);
        for (int p = 0; p < plan_.planes; ++p)
          kernel_.split(words[p], words_.as<uint64_t>() + (g * plan_.planes + p) * stride + r, plan_.planes * stride);
      }
    }
  }

  // Nibble columns of a block of lanes (plane `zero`, and plane `one` for ternary tables), and the base of each lane.
  void fill_columns(int64_t lane0, uint8_t* zero, uint8_t* one, int32_t* base) const {
    const int64_t lanes = kernel_.lanes, column_bytes = lanes / 2;
    const bool ternary = one != nullptr;
    std::fill(base, base + lanes, ternary ? 0 : static_cast<int32_t>(args_.k));
    alignas(64) uint32_t words[2][kPieceWords * kNibbleMaxLanes];
    for (int64_t g = 0; g < plan_.groups; g += kPieceGroups) {
      for (int64_t l = 0; l < lanes; l += kPanelRows) {
        lanes_.read(ternary ? Planes::kProducts : Planes::kBits, lane0 + l, g / kPieceGroups * kPieceWords, lanes,
                    words[0] + l, words[1] + l);
      }
      for (int64_t w = 0; w < kPieceWords; ++w) {
        const int64_t at = (kNibbleGroupColumns * g + 8 * w) * column_bytes;
        kernel_.columns(words[0] + w * lanes, zero + at);
        if (ternary) kernel_.columns(words[1] + w * lanes, one + at);
      }
      for (int64_t l = 0; ternary && l < lanes; ++l)
        base[l] -= kernel_.count(words[0] + l, kPieceWords, lanes) + kernel_.count(words[1] + l, kPieceWords, lanes);
    }
  }

  void run_chunk(int64_t r0, int64_t r1, int64_t lane0) const {
    const int64_t lanes = kernel_.lanes, rows = r1 - r0, column_bytes = lanes / 2;
    const int64_t columns = ceil_div(plan_.groups, kPieceGroups) * kPieceColumns * column_bytes;
    const int64_t table_bytes = kNibbleTables * kNibbleEntries * column_bytes,
                  counts = round_up(rows, kNibbleTransposed) * lanes;
    const int64_t table_planes = plan_.ternary_tables ? 2 : 1;
    const Workspace memory(kernel_.resident * table_bytes + table_planes * columns + 3 * counts);
    uint8_t* tables = memory.as<uint8_t>();
    uint8_t* zero = tables + kernel_.resident * table_bytes;
    uint8_t* one = plan_.ternary_tables ? zero + columns : nullptr;
    uint8_t* bytes = zero + table_planes * columns;
    uint16_t* sums = reinterpret_cast<uint16_t*>(bytes + counts);
    int32_t base[kNibbleMaxLanes];
    fill_columns(lane0, zero, one, base);
    std::fill(sums, sums + counts, uint16_t{0});
    NibblePass pass{tables, {}, 0, plan_.planes, rows, true, false, bytes, sums};
    int64_t in_bytes = 0;
    for (int64_t g = 0; g < plan_.groups; g += kernel_.resident) {
      pass.groups = static_cast<int>(std::min(kernel_.resident, plan_.groups - g));
      for (int i = 0; i < pass.groups; ++i) {
        const int64_t at = kNibbleGroupColumns * (g + i) * column_bytes;
        kernel_.build(zero + at, one == nullptr ? nullptr : one + at, tables + i * table_bytes);
        for (int p = 0; p < plan_.planes; ++p)
          pass.words[i][p] =
              words_.as<uint64_t>() + ((g + i) * plan_.planes + p) * round_up(plan_.rows, kPanelRows) + r0;
      }
      const int64_t step = kNibbleGroup * kernel_.resident * plan_.planes;
      pass.first = in_bytes == 0;
      in_bytes += step;
      pass.last = in_bytes + step > kByteLimit || g + pass.groups == plan_.groups;
      kernel_.look_up(pass);
      if (pass.last) in_bytes = 0;
    }
    if (plan_.tables_of_b) {
      write_rows(r0, rows, lane0, sums, base);
    } else {
      write_columns(r0, rows, lane0, sums, base);
    }
  }

  int32_t factor() const { return (plan_.ternary_tables ? 2 : -2) / plan_.planes; }

  // Writes `columns` elements of row i of C, from column j0 on.
  void write_piece(int64_t i, int64_t j0, int64_t columns, const uint16_t* counts, const int32_t* base,
                   const float* sb) const {
    if (direct_) {
      kernel_.write({counts, base, factor(), columns, free_scale(args_.a, i), sb,
                     args_.bias == nullptr ? nullptr : args_.bias + j0,
                     static_cast<float*>(args_.c) + i * args_.ldc + j0});
      return;
    }
    int32_t dots[kNibbleMaxLanes];
    for (int64_t j = 0; j < columns; ++j) dots[j] = base[j] + factor() * counts[j];
    finish_row(args_, i, j0, columns, dots);
  }

  // Prefetches the lines of C that a later piece writes: a store that misses L2 costs more than the piece itself.
  void fetch(int64_t i, int64_t end, int64_t j0, int64_t columns) const {
    constexpr int64_t kAhead = 6, kLineFloats = 16;
    if (!direct_ || i + kAhead >= end) return;
    const float* c = static_cast<const float*>(args_.c) + (i + kAhead) * args_.ldc + j0;
    for (int64_t j = 0; j < columns; j += kLineFloats) __builtin_prefetch(c + j, 1);
  }

  void fill_scales(int64_t j0, int64_t columns, float* sb) const {
    for (int64_t j = 0; j < columns; ++j) sb[j] = free_scale(args_.b, j0 + j);
  }

  // Output if the lanes are columns of C.
  void write_rows(int64_t i0, int64_t rows, int64_t j0, const uint16_t* sums, const int32_t* base) const {
    const int64_t columns = std::min(kernel_.lanes, args_.n - j0);
    float sb[kNibbleMaxLanes];
    fill_scales(j0, columns, sb);
    for (int64_t i = 0; i < rows; ++i) {
      fetch(i0 + i, i0 + rows, j0, columns);
      write_piece(i0 + i, j0, columns, sums + i * kernel_.lanes, base, sb);
    }
  }

  // Output if the lanes are rows of C.
  void write_columns(int64_t j0, int64_t columns, int64_t i0, const uint16_t* sums, const int32_t* base) const {
    const int64_t rows = std::min(kernel_.lanes, args_.m - i0);
    alignas(64) uint16_t transposed[kNibbleMaxLanes * kNibbleTransposed];
    float sb[kNibbleTransposed];
    int32_t row_base[kNibbleTransposed];
    for (int64_t j = 0; j < columns; j += kNibbleTransposed) {
      const int64_t count = std::min(kNibbleTransposed, columns - j);
      for (int64_t t = 0; t < count; t += 8)
        kernel_.transpose(sums + (j + t) * kernel_.lanes, kernel_.lanes, transposed + t, kNibbleTransposed);
      fill_scales(j0 + j, count, sb);
      for (int64_t i = 0; i < rows; ++i) {
        fetch(i0 + i, i0 + rows, j0 + j, count);
        std::fill(row_base, row_base + count, base[i]);
        write_piece(i0 + i, j0 + j, count, transposed + i * kNibbleTransposed, row_base, sb);
      }
    }
  }

  const GemmArgs& args_;
  const NibbleKernel& kernel_;
  const NibblePlan plan_;
  const BitRows lanes_, rows_;  // the operand that provides the tables, and the one looked up
  const Workspace words_;
  const bool direct_;
};

}  // namespace

bool nibble_supports(const GemmArgs& args, NibbleDot dot) {
  const bool pair = !dot.ternary_a   ? popcount_supports<DotB1B1>(args)
                    : !dot.ternary_b ? popcount_supports<DotTB1>(args)
                                     : popcount_supports<DotTT>(args);
  return pair && args.k <= kMaxK;
}

double nibble_cost(const GemmArgs& args, const NibbleKernel& kernel, NibbleDot dot) {
  return nibble_plan(args, kernel, dot).ns;
}

void nibble_gemm(const GemmArgs& args, const NibbleKernel& kernel, NibbleDot dot) {
  if (args.m == 0 || args.n == 0) return;
  Product(args, kernel, dot).run();
}

}  // namespace bitgrad::kernels::gemm_detail
