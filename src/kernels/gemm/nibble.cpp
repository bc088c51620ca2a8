// The loops of the table products: which operand gives the tables, the cut, the words of look-ups, the output.
#include "kernels/gemm/nibble.h"

#include <algorithm>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "dtype/bit_tricks.h"
#include "kernels/gemm/common.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/popcount.h"

namespace bitgrad::gemm_detail {
namespace {

constexpr int64_t kMaxK = 32767;      // two counts of every k in 16 bits
constexpr int64_t kMaxRows = 1024;    // of a chunk: its counts stay in L2
constexpr int64_t kTurned = 64;       // rows of counts that are transposed together
constexpr int64_t kWordsAtOnce = 8;   // words read from one row before the next: a line
constexpr int64_t kByteLimit = 255;

// Rows of bits in the layout of A (rows of words) or of B (panels of 16 rows).
struct BitRows {
  const uint8_t* plane[2];
  int64_t stride;  // bytes between rows, or panels
  bool panels;
  int64_t rows, k;

  // Word w of row r, zero beyond k.
  uint64_t word(int p, int64_t r, int64_t w) const {
    if (!panels) return detail::load_row_word(plane[p] + r * stride, w, k);
    const auto* lane =
        reinterpret_cast<const uint32_t*>(plane[p] + r / kPanelRows * stride) + 2 * w * kPanelRows + r % kPanelRows;
    const int64_t left = k - 64 * w;
    const uint64_t low = lane[0], high = left > 32 ? lane[kPanelRows] : 0;
    return (low | high << 32) & detail::low_mask(left);
  }
};

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

// One way to compute the product: tables of one operand, look-ups by the other.
struct Plan {
  bool tables_of_b;
  bool ternary_tables;
  int64_t lanes, rows;  // rows of the operand of tables, and of the other one
  int planes;           // words looked up for 60 bits
  int64_t groups;
  int64_t blocks;                  // of lanes
  int64_t chunk_rows, row_chunks;  // of the looked up rows
  double ns;
};

Plan plan_with(const GemmArgs& args, const NibbleKernel& kernel, NibbleDot dot, bool tables_of_b) {
  Plan p{};
  p.tables_of_b = tables_of_b;
  p.ternary_tables = tables_of_b ? dot.ternary_b : dot.ternary_a;
  p.lanes = tables_of_b ? args.n : args.m;
  p.rows = tables_of_b ? args.m : args.n;
  p.planes = (tables_of_b ? dot.ternary_a : dot.ternary_b) ? 2 : 1;
  p.groups = ceil_div(args.k, kNibbleGroup);
  p.blocks = ceil_div(p.lanes, kernel.lanes);
  p.row_chunks = ceil_div(p.rows, kMaxRows);
  p.chunk_rows = p.row_chunks == 0 ? 0 : round_up(ceil_div(p.rows, p.row_chunks), kTurned);
  constexpr double kCall = 600, kWord = 1.2, kLaneWord = 3, kOutput = 0.1, kTurnedOutput = 0.25;
  const double blocks = static_cast<double>(p.blocks), rows = static_cast<double>(p.rows);
  const double groups = static_cast<double>(p.groups), planes = p.planes, width = static_cast<double>(kernel.lanes);
  const double table_planes = p.ternary_tables ? 1.5 : 1;
  const double tables = blocks * static_cast<double>(p.row_chunks) * groups * table_planes;
  p.ns = kCall + blocks * rows * groups * planes * width * kNibbleGroup / kernel.gmacs +
         tables * (kernel.ns_of_group + kLaneWord * 0.1 * width) + rows * groups * planes * kWord +
         blocks * width * rows * (tables_of_b ? kOutput : kTurnedOutput);
  return p;
}

Plan make_plan(const GemmArgs& args, const NibbleKernel& kernel, NibbleDot dot) {
  const Plan a = plan_with(args, kernel, dot, false), b = plan_with(args, kernel, dot, true);
  return a.ns < b.ns ? a : b;
}

class Product {
 public:
  Product(const GemmArgs& args, const NibbleKernel& kernel, NibbleDot dot)
      : args_(args),
        kernel_(kernel),
        plan_(make_plan(args, kernel, dot)),
        lanes_(plan_.tables_of_b ? rows_of_b(args, dot.ternary_b) : rows_of_a(args, dot.ternary_a)),
        rows_(plan_.tables_of_b ? rows_of_a(args, dot.ternary_a) : rows_of_b(args, dot.ternary_b)),
        words_(plan_.groups * plan_.rows * plan_.planes * 8),
        direct_(args.c_dtype == dtypes::fp32 && !args.accumulate) {}

  void run() {
    parallel_ranges(plan_.rows, kTurned, [&](int64_t begin, int64_t end) { fill_words(begin, end); });
    parallel_for(plan_.row_chunks * plan_.blocks, [&](int64_t chunk) {
      const int64_t first = chunk / plan_.blocks * plan_.chunk_rows;
      run_chunk(first, std::min(plan_.rows, first + plan_.chunk_rows), chunk % plan_.blocks * kernel_.lanes);
    });
  }

 private:
  // The signs of word w that are looked up.
  void signs(int64_t r, int64_t w, uint64_t* out) const {
    const uint64_t p0 = rows_.word(0, r, w);
    if (plan_.planes == 1) {
      out[0] = p0;
      return;
    }
    const uint64_t p1 = rows_.word(1, r, w);
    out[0] = ~(p0 & p1) & detail::low_mask(args_.k - 64 * w);
    out[1] = p0 & ~p1;
  }

  // 60 bits of every row [begin, end): [group][row][plane].
  void fill_words(int64_t begin, int64_t end) const {
    const int64_t planes = plan_.planes, total = plane_words(args_.k);
    for (int64_t r = begin; r < end; ++r) {
      uint64_t low[2] = {}, high[2] = {};
      int64_t next = 0;  // the word after `high`
      const auto advance = [&] {
        std::copy(high, high + 2, low);
        std::fill(high, high + 2, uint64_t{0});
        if (next < total) signs(r, next, high);
        ++next;
      };
      advance();
      advance();
      uint64_t* out = words_.as<uint64_t>() + r * planes;
      for (int64_t g = 0; g < plan_.groups; ++g, out += plan_.rows * planes) {
        const int64_t bit = g * kNibbleGroup;
        while (next - 2 < bit / 64) advance();
        const int shift = static_cast<int>(bit % 64);
        for (int64_t p = 0; p < planes; ++p)
          out[p] = shift == 0 ? low[p] : (low[p] >> shift) | (high[p] << (64 - shift));
      }
    }
  }

  int64_t column_count() const {
    return std::max(kNibbleWordColumns * plane_words(args_.k), kNibbleGroupColumns * plan_.groups);
  }

  // Nibble columns of a block of lanes, plane `zero` and of ternary tables plane `one`; base of each lane.
  void fill_columns(int64_t lane0, uint8_t* zero, uint8_t* one, int32_t* base) const {
    const int64_t lanes = kernel_.lanes, count = std::min(lanes, lanes_.rows - lane0), words = plane_words(args_.k);
    const int64_t column_bytes = lanes / 2, filled = kNibbleWordColumns * words * column_bytes;
    const int64_t all = column_count() * column_bytes;
    std::fill(zero + filled, zero + all, uint8_t{0});
    if (one != nullptr) std::fill(one + filled, one + all, uint8_t{0});
    std::fill(base, base + lanes, one == nullptr ? static_cast<int32_t>(args_.k) : 0);
    alignas(64) uint64_t z[kWordsAtOnce][kNibbleMaxLanes] = {}, o[kWordsAtOnce][kNibbleMaxLanes] = {};
    for (int64_t w0 = 0; w0 < words; w0 += kWordsAtOnce) {
      const int64_t w1 = std::min(words, w0 + kWordsAtOnce);
      for (int64_t l = 0; l < count; ++l) {
        for (int64_t w = w0; w < w1; ++w) {
          const uint64_t p0 = lanes_.word(0, lane0 + l, w);
          if (one == nullptr) {
            z[w - w0][l] = p0;
          } else {
            const uint64_t p1 = lanes_.word(1, lane0 + l, w);
            z[w - w0][l] = p0 & p1;
            o[w - w0][l] = p0 & ~p1;
          }
        }
        if (one != nullptr) {
          base[l] -= static_cast<int32_t>(kernel_.count(&z[0][l], w1 - w0, kNibbleMaxLanes) +
                                          kernel_.count(&o[0][l], w1 - w0, kNibbleMaxLanes));
        }
      }
      for (int64_t w = w0; w < w1; ++w) {
        const int64_t at = kNibbleWordColumns * w * column_bytes;
        kernel_.columns(z[w - w0], zero + at);
        if (one != nullptr) kernel_.columns(o[w - w0], one + at);
      }
    }
  }

  void run_chunk(int64_t r0, int64_t r1, int64_t lane0) const {
    const int64_t lanes = kernel_.lanes, rows = r1 - r0, column_bytes = lanes / 2;
    const int64_t columns = round_up(column_count() * column_bytes, 64);
    const int64_t table_bytes = kNibbleTables * kNibbleEntries * column_bytes, counts = round_up(rows, kTurned) * lanes;
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
        pass.words[i] = words_.as<uint64_t>() + ((g + i) * plan_.rows + r0) * plan_.planes;
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

  // `columns` elements of row i of C from column j0 on.
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

  void fill_scales(int64_t j0, int64_t columns, float* sb) const {
    for (int64_t j = 0; j < columns; ++j) sb[j] = free_scale(args_.b, j0 + j);
  }

  // Lanes are columns of C.
  void write_rows(int64_t i0, int64_t rows, int64_t j0, const uint16_t* sums, const int32_t* base) const {
    const int64_t columns = std::min(kernel_.lanes, args_.n - j0);
    float sb[kNibbleMaxLanes];
    fill_scales(j0, columns, sb);
    for (int64_t i = 0; i < rows; ++i) write_piece(i0 + i, j0, columns, sums + i * kernel_.lanes, base, sb);
  }

  // Lanes are rows of C.
  void write_columns(int64_t j0, int64_t columns, int64_t i0, const uint16_t* sums, const int32_t* base) const {
    const int64_t rows = std::min(kernel_.lanes, args_.m - i0);
    alignas(64) uint16_t turned[kNibbleMaxLanes * kTurned];
    float sb[kTurned];
    int32_t row_base[kTurned];
    for (int64_t j = 0; j < columns; j += kTurned) {
      const int64_t count = std::min(kTurned, columns - j);
      for (int64_t t = 0; t < count; t += 8)
        kernel_.transpose(sums + (j + t) * kernel_.lanes, kernel_.lanes, turned + t, kTurned);
      fill_scales(j0 + j, count, sb);
      for (int64_t i = 0; i < rows; ++i) {
        std::fill(row_base, row_base + count, base[i]);
        write_piece(i0 + i, j0 + j, count, turned + i * kTurned, row_base, sb);
      }
    }
  }

  const GemmArgs& args_;
  const NibbleKernel& kernel_;
  const Plan plan_;
  const BitRows lanes_, rows_;  // the operand of tables, the one looked up
  const Workspace words_;
  const bool direct_;
};

}  // namespace

bool nibble_supports(const GemmArgs& args, NibbleDot dot) {
  const bool pair = !dot.ternary_a   ? popcount_supports_b1_b1(args)
                    : !dot.ternary_b ? popcount_supports_t_b1(args)
                                     : popcount_supports_t_t(args);
  return pair && args.k <= kMaxK;
}

void nibble_gemm(const GemmArgs& args, const NibbleKernel& kernel, NibbleDot dot) {
  if (args.m == 0 || args.n == 0) return;
  Product(args, kernel, dot).run();
}

double nibble_cost(const GemmArgs& args, const NibbleKernel& kernel, NibbleDot dot) {
  return make_plan(args, kernel, dot).ns;
}

}  // namespace bitgrad::gemm_detail
