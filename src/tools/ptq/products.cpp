#include "tools/ptq/products.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "bitgrad/base/parallel.h"

namespace bitgrad::detail {
namespace {

constexpr int64_t kTile = 64, kDepth = 256, kLanes = 4;

// Rows [k, k + depth) of the columns [first, first + kTile) as groups of kLanes columns; beyond the edge 0.
void pack(const Block<const double>& x, int64_t k, int64_t depth, int64_t first, double* to) {
  const int64_t inside = std::min(kTile, x.cols - first);
  for (int64_t i = 0; i < depth; ++i) {
    const double* from = x.data + (k + i) * x.stride + first;
    for (int64_t j = 0; j < kTile; ++j) to[(j / kLanes * depth + i) * kLanes + j % kLanes] = j < inside ? from[j] : 0.0;
  }
}

void multiply_lanes(const double* a, const double* b, int64_t depth, double* sums) {
  double s[kLanes][kLanes] = {};
  for (int64_t k = 0; k < depth; ++k, a += kLanes, b += kLanes)
    for (int64_t i = 0; i < kLanes; ++i)
      for (int64_t j = 0; j < kLanes; ++j) s[i][j] += a[i] * b[j];
  for (int64_t i = 0; i < kLanes; ++i)
    for (int64_t j = 0; j < kLanes; ++j) sums[i * kTile + j] += s[i][j];
}

void add_tile(double factor, const Block<const double>& a, const Block<const double>& b, const Block<double>& c,
              int64_t i0, int64_t j0) {
  std::vector<double> left(static_cast<size_t>(kTile * kDepth)), right(left.size()),
      sums(static_cast<size_t>(kTile * kTile));
  for (int64_t k = 0; k < a.rows; k += kDepth) {
    const int64_t depth = std::min(kDepth, a.rows - k);
    pack(a, k, depth, i0, left.data());
    pack(b, k, depth, j0, right.data());
    for (int64_t i = 0; i < std::min(kTile, a.cols - i0); i += kLanes)
      for (int64_t j = 0; j < std::min(kTile, b.cols - j0); j += kLanes)
        multiply_lanes(left.data() + i * depth, right.data() + j * depth, depth, sums.data() + i * kTile + j);
  }
  for (int64_t i = 0; i < std::min(kTile, a.cols - i0); ++i)
    for (int64_t j = 0; j < std::min(kTile, b.cols - j0); ++j)
      c.data[(i0 + i) * c.stride + j0 + j] += factor * sums[static_cast<size_t>(i * kTile + j)];
}

constexpr int64_t kPanel = 64;

// The lower L with h = L^T L: L[k,i] = R[i,k]. In place, panels of rows from the last to the first.
bool factor_from_last(Matrix& h) {
  for (int64_t end = h.rows; end > 0;) {
    const int64_t begin = (end - 1) / kPanel * kPanel;
    for (int64_t k = end - 1; k >= begin; --k) {
      if (!(h[k][k] > 0) || !std::isfinite(h[k][k])) return false;
      const double root = std::sqrt(h[k][k]);
      h[k][k] = root;
      for (int64_t i = 0; i < k; ++i) h[k][i] /= root;
      parallel_ranges(k - begin, 8, [&](int64_t from, int64_t to) {
        for (int64_t i = begin + from; i < begin + to; ++i)
          for (int64_t j = 0; j <= i; ++j) h[i][j] -= h[k][i] * h[k][j];
      });
    }
    const Block<const double> panel = block_of(std::as_const(h), begin, end - begin, 0, begin);
    add_product(-1.0, panel, panel, block_of(h, 0, begin, 0, begin), true);
    end = begin;
  }
  return true;
}

}  // namespace

Matrix transposed(const Matrix& a) {
  Matrix t(a.cols, a.rows);
  parallel_ranges(a.cols, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < a.rows; ++i)
      for (int64_t j = begin; j < end; ++j) t[j][i] = a[i][j];
  });
  return t;
}

void add_product(double factor, Block<const double> a, Block<const double> b, Block<double> c, bool lower) {
  if (a.cols == 0 || b.cols == 0 || a.rows == 0) return;
  const int64_t across = (b.cols + kTile - 1) / kTile, down = (a.cols + kTile - 1) / kTile;
  parallel_for(across * down, [&](int64_t t) {
    const int64_t i = t / across, j = t % across;
    if (!lower || j <= i) add_tile(factor, a, b, c, i * kTile, j * kTile);
  });
}

Matrix multiplied(const Matrix& a, const Matrix& b) {
  const Matrix t = transposed(a);
  Matrix c(a.rows, b.cols);
  add_product(1.0, block_of(t, 0, t.rows, 0, t.cols), block_of(b, 0, b.rows, 0, b.cols),
              block_of(c, 0, c.rows, 0, c.cols));
  return c;
}

bool inverse_factor(Matrix& h, Matrix& u) {
  if (!factor_from_last(h)) return false;
  const int64_t n = h.rows;
  u = Matrix(n, n);
  for (int64_t end = n; end > 0;) {
    const int64_t begin = (end - 1) / kPanel * kPanel;
    for (int64_t i = begin; i < end; ++i) u[i][i] = 1.0;
    add_product(-1.0, block_of(std::as_const(h), end, n - end, begin, end - begin),
                block_of(std::as_const(u), end, n - end, end, n - end), block_of(u, begin, end - begin, end, n - end));
    parallel_ranges(n - begin, 64, [&](int64_t from, int64_t to) {
      for (int64_t i = end - 1; i >= begin; --i) {
        for (int64_t m = i + 1; m < end; ++m)
          for (int64_t j = begin + from; j < begin + to; ++j) u[i][j] -= h[m][i] * u[m][j];
        for (int64_t j = begin + from; j < begin + to; ++j) u[i][j] /= h[i][i];
      }
    });
    end = begin;
  }
  return true;
}

bool solve(Matrix& h, std::vector<double>& b) {
  if (!factor_from_last(h)) return false;
  const int64_t n = h.rows;  // h = L^T L
  for (int64_t k = n - 1; k >= 0; --k) {
    b[static_cast<size_t>(k)] /= h[k][k];
    for (int64_t i = 0; i < k; ++i) b[static_cast<size_t>(i)] -= h[k][i] * b[static_cast<size_t>(k)];
  }
  for (int64_t k = 0; k < n; ++k) {
    for (int64_t i = 0; i < k; ++i) b[static_cast<size_t>(k)] -= h[k][i] * b[static_cast<size_t>(i)];
    b[static_cast<size_t>(k)] /= h[k][k];
  }
  return true;
}

}  // namespace bitgrad::detail
