// gemm_f32_table_scalar: the order of the sum tables (table.h) implemented directly, without tables.
#include <algorithm>
#include <vector>

#include "bitgrad/base/parallel.h"
#include "kernels/gemm/common/epilogue.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/floats/chain512.h"
#include "kernels/gemm/floats/float_operand.h"
#include "kernels/gemm/kernels.h"
#include "kernels/gemm/tables/table.h"

namespace bitgrad::kernels::gemm_impl {
namespace {

using gemm_detail::Fold;
using gemm_detail::TableShape;

constexpr int64_t kRows = 4, kStripWidth = 16, kColumns = 64;

// P over `depth` contracted indices, for one output.
float pass_sum(const TableShape& shape, const float* a, const float* b, int64_t depth) {
  float pass = 0;
  for (int64_t g = 0; g < depth; g += shape.codes) {
    float group = 0;
    for (int64_t k = g; k < std::min<int64_t>(depth, g + shape.codes); ++k) {
      const float term = a[k * kRows] * b[k * kStripWidth];
      group = k == g ? term : group + term;
    }
    pass = g == 0 ? group : pass + group;
  }
  return pass;
}

void run_block(const GemmArgs& args, int64_t m0, int64_t n0, float* a, float* b) {
  const TableShape shape = gemm_detail::table_shape(args.b.dtype);
  const Fold fold = gemm_detail::fold_of(args);
  const int64_t rows = std::min(kRows, args.m - m0), columns = std::min(kColumns, args.n - n0);
  float sums[kRows * kColumns] = {};
  for (int64_t k0 = 0; k0 < args.k; k0 += shape.depth()) {
    const int64_t depth = std::min(shape.depth(), args.k - k0);
    float scales[64];
    for (int64_t k = 0; fold == Fold::kIntoA && k < depth; ++k)
      scales[k] = args.b.scale.scale[gemm_detail::fold_index_k(args.b, k0 + k)];
    gemm_detail::pack_strips({args.a, false, fold == Fold::kIntoA ? scales : nullptr, m0, rows, k0, depth}, kRows, a);
    gemm_detail::pack_strips({args.b, true, nullptr, n0, columns, k0, depth}, kStripWidth, b);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        const float* strip = b + j / kStripWidth * depth * kStripWidth + j % kStripWidth;
        const float pass = pass_sum(shape, a + i, strip, depth);
        float& sum = sums[i * kColumns + j];
        sum = k0 == 0 ? pass : sum + pass;
      }
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    float* row = sums + i * kColumns;
    for (int64_t j = 0; fold == Fold::kOntoSum && j < columns; ++j)
      row[j] *= args.b.scale.scale[gemm_detail::fold_index_n(args.b, n0 + j)];
    gemm_detail::finish_row(args, m0 + i, n0, columns, row);
  }
}

}  // namespace

bool gemm_f32_table_scalar_supports(const GemmArgs& args) { return gemm_detail::table_f32_supports(args); }
double gemm_f32_table_scalar_cost(const GemmArgs& args) {
  return gemm_detail::kReferenceCost + 3 * gemm_detail::multiply_adds(args);
}
void gemm_f32_table_scalar(const GemmArgs& args) {
  const int64_t depth = gemm_detail::table_shape(args.b.dtype).depth();
  parallel_for(gemm_detail::ceil_div(args.m, kRows), [&](int64_t block) {
    std::vector<float> a(static_cast<size_t>(kRows * depth)), b(static_cast<size_t>(kColumns * depth));
    for (int64_t n0 = 0; n0 < args.n; n0 += kColumns) run_block(args, block * kRows, n0, a.data(), b.data());
  });
}

}  // namespace bitgrad::kernels::gemm_impl
