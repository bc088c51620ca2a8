// The weights that a layer is fitted to. Its inputs are those of a model whose layers before are quantized, so that the
// float weights are not the best ones in floats any more: the target is the solution v of the ridge regression
// E|y - v x|^2 + damp mean(diag H) |v - w|^2 -> min, H = E x x^T: v = w + (E y x^T - w H) (H + damp mean(diag H))^-1.
// With a bias, which gives each output its mean anyway, of y and x less their means.
#include <algorithm>

#include "tools/ptq/method.h"

namespace bitgrad::detail {

Matrix fitted_target(const LayerData& data, const Matrix& w, bool biased, double damp) {
  Matrix target = w;
  const int64_t part = w.rows / data.groups, k = w.cols;
  for (int64_t g = 0; g < data.groups; ++g) {
    const auto group = static_cast<size_t>(g);
    const std::vector<double>& x = data.sums.x[group];
    const auto mean_of = [&](int64_t j) { return biased ? x[static_cast<size_t>(j)] : 0.0; };
    Matrix h = data.sums.xx[group], own(part, k);
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < k; ++j) h[i][j] -= mean_of(i) * mean_of(j);
    std::copy(w[g * part], w[g * part] + part * k, own[0]);
    Matrix rest = multiplied(own, h);
    for (int64_t i = 0; i < part; ++i)
      for (int64_t j = 0; j < k; ++j)
        rest[i][j] =
            data.sums.yx[group][i][j] - data.sums.y[static_cast<size_t>(g * part + i)] * mean_of(j) - rest[i][j];
    double mean = 0;
    for (int64_t i = 0; i < k; ++i) mean += h[i][i] / static_cast<double>(k);
    if (!(mean > 0)) continue;  // inputs are constant
    for (int64_t i = 0; i < k; ++i) h[i][i] += damp * mean;
    Matrix u;
    require(inverse_factor(h, u), "quantize", "the inputs of '", data.layer, "' depend on each other: their products ",
            "are not positive definite with damp ", damp, ". Use a larger one");
    const Matrix change = multiplied(multiplied(rest, transposed(u)), u);
    for (int64_t i = 0; i < part; ++i)
      for (int64_t j = 0; j < k; ++j) target[g * part + i][j] += change[i][j];
  }
  return target;
}

}  // namespace bitgrad::detail
