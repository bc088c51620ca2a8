// gemm_f64_scalar: the reference in double, for all dtypes, scales and storage orders.
//
// sum = +0, then sum = sum + a[k] * b[k] over ascending k, with two roundings each, on the values of float_operand.h.
// Then times a scale folded per n, then the epilogue in double (epilogue.h). A scale folded per k is multiplied into
// A's values in double.
#include <algorithm>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/gemm/common/epilogue.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/floats/float_operand.h"
#include "kernels/gemm/kernels.h"

namespace bitgrad::kernels::gemm_impl {
namespace {

using namespace gemm_detail;

constexpr int64_t kRows = 16, kColumns = 64, kDepth = 256;  // per chunk

// out[f][kDepth] = values of free indices [f0, f0 + count) and contracted indices [k0, k0 + depth).
void expand(const GemmOperand& x, bool bare, int64_t f0, int64_t count, int64_t k0, int64_t depth, double* out) {
  if (!x.k_major) {
    for (int64_t f = 0; f < count; ++f) read_values(x, f0 + f, k0, depth, bare, out + f * kDepth);
    return;
  }
  double line[kColumns];
  for (int64_t k = 0; k < depth; ++k) {
    read_values(x, k0 + k, f0, count, bare, line);
    for (int64_t f = 0; f < count; ++f) out[f * kDepth + k] = line[f];
  }
}

struct Chunk {
  double a[kRows * kDepth], b[kColumns * kDepth], sum[kRows * kColumns];
};

void run_chunk(const GemmArgs& args, Fold fold, int64_t i0, int64_t j0, Chunk& chunk) {
  const int64_t rows = std::min(kRows, args.m - i0), columns = std::min(kColumns, args.n - j0);
  std::fill(chunk.sum, chunk.sum + kRows * kColumns, 0.0);
  for (int64_t k0 = 0; k0 < args.k; k0 += kDepth) {
    const int64_t depth = std::min(kDepth, args.k - k0);
    expand(args.a, false, i0, rows, k0, depth, chunk.a);
    expand(args.b, fold != Fold::kNone, j0, columns, k0, depth, chunk.b);
    if (fold == Fold::kIntoA) {
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t k = 0; k < depth; ++k)
          chunk.a[i * kDepth + k] *= static_cast<double>(args.b.scale.scale[fold_index_k(args.b, k0 + k)]);
    }
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        double sum = chunk.sum[i * kColumns + j];
        for (int64_t k = 0; k < depth; ++k) sum = sum + chunk.a[i * kDepth + k] * chunk.b[j * kDepth + k];
        chunk.sum[i * kColumns + j] = sum;
      }
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    double* sums = chunk.sum + i * kColumns;
    if (fold == Fold::kOntoSum)
      for (int64_t j = 0; j < columns; ++j) sums[j] *= args.b.scale.scale[fold_index_n(args.b, j0 + j)];
    finish_row(args, i0 + i, j0, columns, sums);
  }
}

}  // namespace

bool gemm_f64_scalar_supports(const GemmArgs& args) {
  const bool output = args.c_dtype == dtypes::fp32 || args.c_dtype == dtypes::bf16 || args.c_dtype == dtypes::fp64;
  return output && fold_is_legal(args) && !gemm_is_integer(args) && args.row_minus == nullptr;
}

double gemm_f64_scalar_cost(const GemmArgs& args) { return 2 * kReferenceCost + 4.0 * multiply_adds(args); }

void gemm_f64_scalar(const GemmArgs& args) {
  const int64_t blocks_n = ceil_div(args.n, kColumns);
  const Fold fold = fold_of(args);
  parallel_for(ceil_div(args.m, kRows) * blocks_n, [&](int64_t index) {
    const Workspace workspace(sizeof(Chunk));
    run_chunk(args, fold, index / blocks_n * kRows, index % blocks_n * kColumns, *workspace.as<Chunk>());
  });
}

}  // namespace bitgrad::kernels::gemm_impl
