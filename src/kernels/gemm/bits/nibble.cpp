// The loops of the nibble counts: packing words of look-ups, building tables, counting, writing the output.
#include "kernels/gemm/bits/nibble.h"

#include <algorithm>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/gemm/bits/nibble_kernels.h"
#include "kernels/gemm/bits/nibble_plan.h"
#include "kernels/gemm/common/epilogue.h"
#include "kernels/gemm/common/operands.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int64_t kByteLimit = 255;

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

void nibble_gemm(const GemmArgs& args, const NibbleKernel& kernel, NibbleDot dot) {
  if (args.m == 0 || args.n == 0) return;
  Product(args, kernel, dot).run();
}

}  // namespace bitgrad::kernels::gemm_detail
