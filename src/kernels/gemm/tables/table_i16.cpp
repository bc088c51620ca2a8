// The loops of exact integer products by sum tables (table.h). 16-bit sums accumulate passes as long as a bound
// computed from A's codes proves that they do not overflow. Then their upper part is carried into a second 16-bit
// value.
#include <algorithm>

#include "base/loops.h"
#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/gemm/bytes/s8_expand.h"
#include "kernels/gemm/common/epilogue.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/tables/table.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int64_t kRowLanes = 32;
constexpr int64_t kRows = 128;                  // rows of A expanded at a time
constexpr int64_t kPieceColumns = 128;          // columns finished at a time, while their sums are in L1
constexpr int64_t kMaxDepth = 1 << 17;          // 255 * 3 * this is below 2^15 * 4096
constexpr int32_t kMost = 32767, kRest = 2048;  // bounds of a 16-bit sum, and of its lower part after a carry

// Computes one block of C on one thread.
class IntTask : TableBlock {
 public:
  IntTask(const TableKernel& kernel, const GemmArgs& args, const TableCut& cut, int64_t index)
      : TableBlock(args, cut, kRowLanes, index), kernel_(kernel), args_(args), workspace_(bytes()) {
    TableMemory memory{workspace_.as<char>()};
    tables_ = memory.take<char>(shape_.bytes());
    offsets_ = memory.take<uint16_t>(columns_ * kTableFields * 2);
    low_ = memory.take<int16_t>(lines_ * columns_ * kTableLine);
    high_ = memory.take<int16_t>(lines_ * columns_ * kTableLine);
    a_ = memory.take<int16_t>(lines_ * chunk_ * kTableLine);
    state_ = memory.take<State>(lines_ * static_cast<int64_t>(sizeof(State)));
  }

  void run() {
    std::fill(state_, state_ + lines_, State{0, false});
    for (int64_t k0 = 0; k0 < args_.k; k0 += chunk_) {
      const int64_t kc = std::min(chunk_, args_.k - k0);
      load_a(k0, kc);
      for (int64_t p = 0; p < kc; p += shape_.depth()) add_pass(k0, p, kc);
    }
    if (args_.k == 0) finish_zeros();
  }

 private:
  // State of a line: a bound on low, and whether high is in use.
  struct State {
    int32_t bound;
    bool carried;
  };

  int64_t bytes() const {
    return shape_.bytes() + columns_ * kTableFields * 2 + lines_ * (2 * columns_ + chunk_) * kTableLine +
           lines_ * static_cast<int64_t>(sizeof(State));
  }

  // Loads A as [line][k][lane]: the expander's strips, with the free and contracted sides swapped.
  void load_a(int64_t k0, int64_t kc) {
    GemmOperand transposed = args_.a;
    transposed.k_major = !transposed.k_major;
    const auto shift = static_cast<int32_t>(byte_range(args_.a.dtype).shift);
    for (int64_t m = 0; m < m_; m += kRows) {
      const int64_t rows = std::min(kRows, m_ - m), step = round_up(rows, kRowLanes);
      for (int64_t k = 0; k < kc; k += kStrip) {
        const int64_t count = std::min(kStrip, kc - k);
        int8_t codes[kStrip * kRows];
        expand_strip(transposed, k0 + k, count, m0_ + m, rows, codes, step);
        for (int64_t lane = 0; lane < rows; lane += kRowLanes) {
          int16_t* to = a_ + ((m + lane) / kRowLanes * chunk_ + k) * kRowLanes;
          for (int64_t i = 0; i < count; ++i, to += kRowLanes) {
            for (int64_t l = 0; l < kRowLanes; ++l) to[l] = static_cast<int16_t>(codes[i * step + lane + l] + shift);
          }
        }
      }
    }
  }

  void add_pass(int64_t k0, int64_t p, int64_t kc) {
    const int64_t depth = std::min(shape_.depth(), kc - p), groups = ceil_div(depth, shape_.codes);
    const bool first = k0 + p == 0, last = k0 + p + depth == args_.k;
    table_offsets(kernel_, shape_, args_.b, n0_, n_, k0 + p, depth, offsets_);
    for (int64_t line = 0; line < lines_; ++line) {
      const int16_t* a = a_ + (line * chunk_ + p) * kRowLanes;
      int16_t* low = low_ + line * columns_ * kRowLanes;
      State& state = state_[line];
      const int32_t bound = kernel_.bound(a, depth) * shape_.magnitude();
      if (state.bound + bound > kMost) {
        kernel_.carry(low, high_ + line * columns_ * kRowLanes, n_, !state.carried);
        state = {kRest, true};
      }
      state.bound += bound;
      kernel_.i16.build(shape_, a, depth, tables_);
      const int64_t step = last ? kPieceColumns : n_;
      for (int64_t j = 0; j < n_; j += step) {
        const int64_t count = std::min(step, n_ - j);
        kernel_.i16.add(shape_, groups, first, tables_, offsets_ + j * kTableFields, count, low + j * kRowLanes);
        if (last) finish(line, j, count);
      }
    }
  }

  void finish_zeros() {
    std::fill(low_, low_ + lines_ * columns_ * kRowLanes, int16_t{0});
    for (int64_t line = 0; line < lines_; ++line)
      for (int64_t j = 0; j < n_; j += kPieceColumns) finish(line, j, std::min(kPieceColumns, n_ - j));
  }

  int64_t rows_of(int64_t line) const { return std::min(kRowLanes, m_ - line * kRowLanes); }

  // Columns [j, j + count) of a line, count <= kPieceColumns.
  void finish(int64_t line, int64_t j, int64_t count) {
    const int64_t m0 = m0_ + line * kRowLanes, rows = rows_of(line), at = (line * columns_ + j) * kRowLanes;
    const int16_t* high = state_[line].carried ? high_ + at : nullptr;
    const bool direct = args_.c_dtype == dtypes::fp32 && args_.row_minus == nullptr;
    if (direct) {
      finish_floats(m0, rows, j, count, low_ + at, high);
    } else {
      finish_sums(m0, rows, j, count, low_ + at, high);
    }
  }

  void finish_floats(int64_t m0, int64_t rows, int64_t j, int64_t count, const int16_t* low, const int16_t* high) {
    const ScaleMap& map = args_.b.scale;
    const bool by_column = map.scale != nullptr && !map.per_tensor();
    const float constant = map.scale != nullptr && !by_column ? *map.scale : 1.0f;
    float row_scale[kRowLanes];
    for (int64_t i = 0; i < rows; ++i) row_scale[i] = free_scale(args_.a, m0 + i) * constant;
    const bool scaled = args_.a.scale.scale != nullptr || map.scale != nullptr;
    for (int64_t i = 0; i < rows; i += 16) {
      TableFinish finish{};
      finish.low = low + i;
      finish.high = high == nullptr ? nullptr : high + i;
      finish.rows = std::min<int64_t>(16, rows - i);
      finish.columns = count;
      finish.row_scale = scaled ? row_scale + i : nullptr;
      finish.column_scale = by_column ? map.scale + n0_ + j : nullptr;
      finish.bias = args_.bias == nullptr ? nullptr : args_.bias + n0_ + j;
      finish.add = args_.accumulate;
      finish.ldc = args_.ldc;
      finish.c = static_cast<float*>(args_.c) + (m0 + i) * args_.ldc + n0_ + j;
      kernel_.finish(finish);
    }
  }

  void finish_sums(int64_t m0, int64_t rows, int64_t j, int64_t count, const int16_t* low, const int16_t* high) {
    int64_t sums[kPieceColumns];
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t minus = args_.row_minus == nullptr ? 0 : args_.row_minus[m0 + i];
      for (int64_t c = 0; c < count; ++c) {
        const int64_t at = c * kRowLanes + i, sum = low[at] + (high == nullptr ? 0 : int64_t{high[at]} * 4096);
        if (__builtin_sub_overflow(sum, minus, &sums[c])) sums[c] = minus < 0 ? INT64_MAX : INT64_MIN;
      }
      finish_row(args_, m0 + i, n0_ + j, count, sums);
    }
  }

  const TableKernel& kernel_;
  const GemmArgs& args_;
  const Workspace workspace_;
  char* tables_;
  uint16_t* offsets_;
  int16_t *low_, *high_, *a_;
  State* state_;
};

}  // namespace

bool table_i16_supports(const GemmArgs& args) {
  return integer_product(args) == IntegerProduct::kPlain && table_shape(args.b.dtype).codes != 0 &&
         has_small_integer_codes(args.a.dtype) && args.a.scale.zero == nullptr && args.b.scale.zero == nullptr &&
         args.k <= kMaxDepth && integer_output_supported(args);
}

double table_i16_cost(const TableKernel& kernel, const GemmArgs& args) {
  const bool direct = args.c_dtype == dtypes::fp32 && args.row_minus == nullptr;
  return table_cost(kernel, args, cut_tables(args, kRowLanes, 2 * kTableLine, kTableTasks), kRowLanes,
                    direct ? 0.3 : 2);
}

void run_table_i16(const TableKernel& kernel, const GemmArgs& args) {
  if (args.m <= 0 || args.n <= 0) return;
  const TableCut cut = cut_tables(args, kRowLanes, 2 * kTableLine, detail::loops_run_inline() ? 1 : kTableTasks);
  parallel_for(cut.blocks_m * cut.blocks_n, [&](int64_t index) { IntTask(kernel, args, cut, index).run(); });
}

}  // namespace bitgrad::kernels::gemm_detail
