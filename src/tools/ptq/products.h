// Products and factors of matrices in double, for Hessians of layers. Sums run in one order, whatever the threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bitgrad::detail {

// Row-major.
struct Matrix {
  Matrix() = default;
  Matrix(int64_t r, int64_t c) : rows(r), cols(c), v(static_cast<size_t>(r * c)) {}
  double* operator[](int64_t r) { return v.data() + r * cols; }
  const double* operator[](int64_t r) const { return v.data() + r * cols; }
  int64_t rows = 0, cols = 0;
  std::vector<double> v = {};
};
Matrix transposed(const Matrix& a);

// A part of a matrix: rows of `cols` numbers, `stride` apart.
template <typename T>
struct Block {
  T* data = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;
};
inline Block<const double> block_of(const Matrix& a, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  return {a[row] + col, rows, cols, a.cols};
}
inline Block<double> block_of(Matrix& a, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  return {a[row] + col, rows, cols, a.cols};
}

// c[i,j] += factor * sum_k a[k,i] b[k,j], in ascending k. `lower`: only tiles that reach the diagonal or lie below it.
void add_product(double factor, Block<const double> a, Block<const double> b, Block<double> c, bool lower = false);
// a b of [m,k] and [k,n].
Matrix multiplied(const Matrix& a, const Matrix& b);

// The upper triangle U with h^-1 = U^T U, diagonal above 0: the inverse of the upper R with h = R R^T. h is symmetric;
// its lower triangle is read, and overwritten. Returns false if h is not positive definite.
bool inverse_factor(Matrix& h, Matrix& u);
// x of h x = b for symmetric, positive definite h (overwritten); false if it is not.
bool solve(Matrix& h, std::vector<double>& b);

}  // namespace bitgrad::detail
