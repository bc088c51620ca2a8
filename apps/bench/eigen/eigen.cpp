// Eigen's fp32 product, compiled once per instruction set (apps/CMakeLists.txt).
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

#include "bench_gemm_eigen.h"

namespace {

using RowMajor = Eigen::Map<Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;
using ConstRow = Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;
using ConstColumn = Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>>;

template <typename A, typename B>
void multiply(const bitgrad::bench::EigenProduct& p) {
  const A a(p.a, p.m, p.k);
  const B b(p.b, p.k, p.n);
  RowMajor c(p.c, p.m, p.n);
  if (p.add) {
    c.noalias() += a * b;
  } else {
    c.noalias() = a * b;
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void bench_eigen_sgemm(const bitgrad::bench::EigenProduct& p) {
  if (p.a_k_major) return p.b_k_major ? multiply<ConstColumn, ConstRow>(p) : multiply<ConstColumn, ConstColumn>(p);
  return p.b_k_major ? multiply<ConstRow, ConstRow>(p) : multiply<ConstRow, ConstColumn>(p);
}
