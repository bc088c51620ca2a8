// gemm_f32_eigen: plain fp32 products by Eigen, compiled for the baseline instruction set.
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

#include "kernels/gemm/common/epilogue.h"
#include "kernels/gemm/floats/library_blocks.h"
#include "kernels/gemm/kernels.h"

namespace bitgrad::kernels::gemm_impl {
namespace {

using namespace gemm_detail;
using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ColMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;

// A [rows, columns] matrix in row-major or column-major order.
template <typename Matrix>
auto map_of(const GemmOperand& x, int64_t f, int64_t rows, int64_t columns) {
  return Eigen::Map<const Matrix, Eigen::Unaligned, Eigen::OuterStride<>>(
      static_cast<const float*>(free_start(x, f)), rows, columns, Eigen::OuterStride<>(x.stride / 4));
}

template <typename A, typename B>
void multiply(const A& a, const B& b, float* c, int64_t ldc, bool accumulate) {
  Eigen::Map<RowMajor, Eigen::Unaligned, Eigen::OuterStride<>> out(c, a.rows(), b.cols(), Eigen::OuterStride<>(ldc));
  if (accumulate) {
    out.noalias() += a * b;
  } else {
    out.noalias() = a * b;
  }
}

template <typename A>
void multiply_by_b(const GemmArgs& args, const A& a, int64_t j0, int64_t columns, float* c) {
  if (args.b.k_major) {
    multiply(a, map_of<RowMajor>(args.b, j0, args.k, columns), c, args.ldc, args.accumulate);
  } else {
    multiply(a, map_of<ColMajor>(args.b, j0, args.k, columns), c, args.ldc, args.accumulate);
  }
}

}  // namespace

bool gemm_f32_eigen_supports(const GemmArgs& args) {
  return plain_operands(args, dtypes::fp32) && args.c_dtype == dtypes::fp32 &&
         !(args.accumulate && args.bias != nullptr);
}

double gemm_f32_eigen_cost(const GemmArgs& args) {
  return 100.0 + 0.08 * static_cast<double>(args.k) * static_cast<double>(args.m + args.n) + multiply_adds(args) / 13.5;
}

void gemm_f32_eigen(const GemmArgs& args) {
  if (args.m <= 0 || args.n <= 0) return;
  for_library_blocks(args, [&](int64_t i0, int64_t rows, int64_t j0, int64_t columns) {
    float* c = static_cast<float*>(args.c) + i0 * args.ldc + j0;
    if (args.a.k_major) {
      multiply_by_b(args, map_of<ColMajor>(args.a, i0, rows, args.k), j0, columns, c);
    } else {
      multiply_by_b(args, map_of<RowMajor>(args.a, i0, rows, args.k), j0, columns, c);
    }
    if (args.bias == nullptr) return;
    for (int64_t i = 0; i < rows; ++i) finish_row(args, i0 + i, j0, columns, c + i * args.ldc);
  });
}

}  // namespace bitgrad::kernels::gemm_impl
