// refit: codes stay, scales become those with the least squared error of the outputs: of a row of groups g with codes
// c_g, the solution of sum_h (c_g H c_h) s_h = c_g H w, H the mean of x x^T.
#include <cmath>

#include "bitgrad/base/parallel.h"
#include "tools/ptq/method.h"

namespace bitgrad::detail {
namespace {

class Refit final : public PtqMethod {
 public:
  std::string_view name() const override { return "refit"; }
  std::string_view doc() const override { return "scales fitted to the codes by least squares of the outputs"; }
  std::string refuses(const LayerData& data, const LayerState&) const override {
    if (data.grid.fixed) return "its scales are fixed";
    if (data.grid.spec.pow2) return "its scales are powers of two";
    if (data.blocks() > kMostGroups) return concat("it has ", data.blocks(), " groups a row, more than ", kMostGroups);
    return data.grid.shared ? "its rows share a scale" : "";
  }
  LayerState layer(const LayerData& data, const LayerState& state, const PtqSpec&) const override {
    LayerState to = state;
    const int64_t part = data.w.rows / data.groups;
    for (int64_t g = 0; g < data.groups; ++g) {
      Matrix target(part, data.w.cols);  // w - offset, and its product with H
      for (int64_t i = 0; i < part; ++i)
        for (int64_t k = 0; k < data.w.cols; ++k)
          target[i][k] =
              data.w[g * part + i][k] - (state.offsets.empty() ? 0.0 : state.offsets[data.scale_of(g * part + i, k)]);
      const Matrix& h = data.sums.xx[static_cast<size_t>(g)];
      const Matrix products = multiplied(target, h);
      parallel_for(part, [&](int64_t i) { fit_row(data, state, g * part + i, h, products[i], to); });
    }
    return to;
  }

 private:
  static constexpr int64_t kMostGroups = 512;

  // The scales of row `o`; `hw`: H w. A row whose system has no solution above 0 keeps its scales.
  static void fit_row(const LayerData& data, const LayerState& state, int64_t o, const Matrix& h, const double* hw,
                      LayerState& to) {
    const int64_t blocks = data.blocks(), k = data.w.cols, block = data.grid.block;
    Matrix system(blocks, blocks);
    std::vector<double> right(static_cast<size_t>(blocks)), codes(static_cast<size_t>(k));
    for (int64_t j = 0; j < k; ++j) {
      codes[static_cast<size_t>(j)] =
          state.codes[o][j] - (state.zeros.empty() ? 0.0 : state.zeros[data.scale_of(o, j)]);
      right[static_cast<size_t>(j / block)] += codes[static_cast<size_t>(j)] * hw[j];
    }
    for (int64_t i = 0; i < k; ++i) {
      if (codes[static_cast<size_t>(i)] == 0) continue;
      double* row = system[i / block];
      for (int64_t j = 0; j < k; ++j)
        row[j / block] += codes[static_cast<size_t>(i)] * h[i][j] * codes[static_cast<size_t>(j)];
    }
    double mean = 0;
    for (int64_t b = 0; b < blocks; ++b) mean += system[b][b] / static_cast<double>(blocks);
    for (int64_t b = 0; b < blocks; ++b) {
      if (system[b][b] == 0)
        system[b][b] = 1, right[static_cast<size_t>(b)] = state.scales[data.scale_of(o, b * block)];
      system[b][b] += 1e-9 * mean;
    }
    if (!solve(system, right)) return;
    for (int64_t b = 0; b < blocks; ++b) {
      const double scale = stored_scale(data.grid.spec, right[static_cast<size_t>(b)]);
      if (!std::isfinite(scale) || !(scale > 0)) return;
      right[static_cast<size_t>(b)] = scale;
    }
    for (int64_t b = 0; b < blocks; ++b) to.scales[data.scale_of(o, b * block)] = right[static_cast<size_t>(b)];
  }
};

}  // namespace

std::unique_ptr<PtqMethod> make_Refit() { return std::make_unique<Refit>(); }

}  // namespace bitgrad::detail
