// The loops of float products by sum tables (table.h).
#include <algorithm>

#include "base/loops.h"
#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/gemm/common/epilogue.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/floats/chain512.h"
#include "kernels/gemm/floats/float_operand.h"
#include "kernels/gemm/tables/table.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kPiece = 128;  // columns finished at a time, while their sums are in L1

// Computes one block of C on one thread.
class FloatTask : TableBlock {
 public:
  FloatTask(const TableKernel& kernel, const GemmArgs& args, const TableCut& cut, int64_t index)
      : TableBlock(args, cut, kLanes, index), kernel_(kernel), args_(args), fold_(fold_of(args)), workspace_(bytes()) {
    TableMemory memory{workspace_.as<char>()};
    tables_ = memory.take<char>(shape_.bytes());
    offsets_ = memory.take<uint16_t>(columns_ * kTableFields * 2);
    sums_ = memory.take<float>(lines_ * columns_ * kTableLine);
    a_ = memory.take<float>(lines_ * chunk_ * kTableLine);
    scales_ = memory.take<float>(scale_floats() * 4);
  }

  void run() {
    if (fold_ == Fold::kOntoSum)
      for (int64_t j = 0; j < n_; ++j) scales_[j] = args_.b.scale.scale[fold_index_n(args_.b, n0_ + j)];
    for (int64_t k0 = 0; k0 < args_.k; k0 += chunk_) {
      const int64_t kc = std::min(chunk_, args_.k - k0);
      pack_strips({args_.a, false, fold_scales(k0, kc), m0_, m_, k0, kc}, kLanes, a_);
      for (int64_t p = 0; p < kc; p += shape_.depth()) add_pass(k0, p, kc);
    }
    if (args_.k == 0) finish_zeros();
  }

 private:
  int64_t scale_floats() const {
    return fold_ == Fold::kIntoA ? round_up(chunk_, kLanes) : (fold_ == Fold::kOntoSum ? columns_ : 0);
  }
  int64_t bytes() const {
    return shape_.bytes() + columns_ * kTableFields * 2 + lines_ * (columns_ + chunk_) * kTableLine +
           scale_floats() * 4;
  }

  const float* fold_scales(int64_t k0, int64_t kc) {
    if (fold_ != Fold::kIntoA) return nullptr;
    for (int64_t k = 0; k < kc; ++k) scales_[k] = args_.b.scale.scale[fold_index_k(args_.b, k0 + k)];
    return scales_;
  }

  void add_pass(int64_t k0, int64_t p, int64_t kc) {
    const int64_t depth = std::min(shape_.depth(), kc - p), groups = ceil_div(depth, shape_.codes);
    const bool first = k0 + p == 0, last = k0 + p + depth == args_.k;
    table_offsets(kernel_, shape_, args_.b, n0_, n_, k0 + p, depth, offsets_);
    for (int64_t line = 0; line < lines_; ++line) {
      kernel_.f32.build(shape_, a_ + (line * kc + p) * kLanes, depth, tables_);
      const int64_t step = last ? kPiece : n_;
      for (int64_t j = 0; j < n_; j += step) {
        const int64_t count = std::min(step, n_ - j);
        kernel_.f32.add(shape_, groups, first, tables_, offsets_ + j * kTableFields, count,
                        sums_ + (line * columns_ + j) * kLanes);
        if (last) finish(line, j, count);
      }
    }
  }

  void finish_zeros() {
    std::fill(sums_, sums_ + lines_ * columns_ * kLanes, 0.0f);
    for (int64_t line = 0; line < lines_; ++line)
      for (int64_t j = 0; j < n_; j += kPiece) finish(line, j, std::min(kPiece, n_ - j));
  }

  int64_t rows_of(int64_t line) const { return std::min(kLanes, m_ - line * kLanes); }

  // Columns [j, j + count) of a line, count <= kPiece.
  void finish(int64_t line, int64_t j, int64_t count) {
    const int64_t m0 = m0_ + line * kLanes, rows = rows_of(line), n0 = n0_ + j;
    const float* sums = sums_ + (line * columns_ + j) * kLanes;
    const float* scales = fold_ == Fold::kOntoSum ? scales_ + j : nullptr;
    if (args_.c_dtype == dtypes::fp32) {
      const float* bias = args_.bias == nullptr ? nullptr : args_.bias + n0;
      float* c = static_cast<float*>(args_.c) + m0 * args_.ldc + n0;
      return kernel_.finish(
          {sums, nullptr, nullptr, rows, count, nullptr, scales, bias, args_.accumulate, c, args_.ldc});
    }
    float piece[kLanes * kPiece];
    kernel_.finish({sums, nullptr, nullptr, rows, count, nullptr, scales, nullptr, false, piece, kPiece});
    for (int64_t i = 0; i < rows; ++i) finish_row(args_, m0 + i, n0, count, piece + i * kPiece);
  }

  const TableKernel& kernel_;
  const GemmArgs& args_;
  const Fold fold_;
  const Workspace workspace_;
  char* tables_;
  uint16_t* offsets_;
  float *sums_, *a_, *scales_;
};

}  // namespace

bool table_f32_supports(const GemmArgs& args) {
  const bool bare = args.b.scale.trivial() || args.fold_b_scale;
  return bare && table_shape(args.b.dtype).codes != 0 && chain512_supports(args);
}

double table_f32_cost(const TableKernel& kernel, const GemmArgs& args) {
  return table_cost(kernel, args, cut_tables(args, kLanes, kTableLine, kTableTasks), kLanes,
                    args.c_dtype == dtypes::fp32 ? 0.3 : 1);
}

void run_table_f32(const TableKernel& kernel, const GemmArgs& args) {
  if (args.m <= 0 || args.n <= 0) return;
  const TableCut cut = cut_tables(args, kLanes, kTableLine, detail::loops_run_inline() ? 1 : kTableTasks);
  parallel_for(cut.blocks_m * cut.blocks_n, [&](int64_t index) { FloatTask(kernel, args, cut, index).run(); });
}

}  // namespace bitgrad::kernels::gemm_detail
