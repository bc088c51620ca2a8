// Codes, scales and the error of a layer's output.
#include <algorithm>
#include <cmath>
#include <limits>

#include "bitgrad/base/parallel.h"
#include "kernels/map/numbers.h"
#include "tools/ptq/method.h"

namespace bitgrad::detail {

double value_of(const LayerData& data, const LayerState& state, int64_t o, int64_t k) {
  const size_t s = data.scale_of(o, k);
  const double zero = state.zeros.empty() ? 0.0 : state.zeros[s],
               offset = state.offsets.empty() ? 0.0 : state.offsets[s];
  return state.scales[s] * (state.codes[o][k] - zero) + offset;
}

Matrix values_of(const LayerData& data, const LayerState& state) {
  Matrix values(data.w.rows, data.w.cols);
  parallel_ranges(data.w.rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o)
      for (int64_t k = 0; k < data.w.cols; ++k) values[o][k] = value_of(data, state, o, k);
  });
  return values;
}

double nearest_code(const LayerData& data, const LayerState& state, size_t scale, double x) {
  const double centered = state.offsets.empty() ? x : x - state.offsets[scale];
  if (data.grid.signs) return centered >= 0 ? 1.0 : -1.0;
  const double zero = state.zeros.empty() ? 0.0 : state.zeros[scale];
  const double code = std::nearbyint(centered / state.scales[scale]) + zero;
  return std::clamp(code, static_cast<double>(data.grid.lo), static_cast<double>(data.grid.hi));
}

double stored_scale(const QuantSpec& spec, double scale) {
  return static_cast<double>(maps::q::rounded_scale(scale_rounding(spec), static_cast<float>(scale)));
}

double total(const std::vector<double>& parts) {
  double sum = 0;
  for (const double p : parts) sum += p;
  return sum;
}

std::vector<double> output_errors(const LayerData& data, const LayerState& state) {
  const LayerSums& s = data.sums;
  const Matrix values = values_of(data, state);
  const int64_t part = data.w.rows / data.groups, k = data.w.cols;
  std::vector<double> errors(static_cast<size_t>(data.w.rows));
  for (int64_t g = 0; g < data.groups; ++g) {
    const auto group = static_cast<size_t>(g);
    Matrix own(part, k);
    std::copy(values[g * part], values[g * part] + part * k, own[0]);
    const Matrix product = multiplied(own, s.xx[group]);
    for (int64_t i = 0; i < part; ++i) {
      const auto o = static_cast<size_t>(g * part + i);
      const double b = state.bias.empty() ? 0.0 : state.bias[o];
      double quadratic = 0, cross = 0, mean = 0;
      for (int64_t j = 0; j < k; ++j) {
        quadratic += product[i][j] * own[i][j];
        cross += s.yx[group][i][j] * own[i][j];
        mean += s.x[group][static_cast<size_t>(j)] * own[i][j];
      }
      errors[o] = std::max(0.0, s.yy[o] - 2 * cross - 2 * b * s.y[o] + quadratic + 2 * b * mean + b * b);
    }
  }
  return errors;
}

void fit_scales(const LayerData& data, const Matrix& w, const Part& part, LayerState& state) {
  std::vector<double> numbers;
  for (int64_t o = part.row; o < part.last_row; ++o)
    numbers.insert(numbers.end(), w[o] + part.col, w[o] + part.last_col);
  const Tensor values = Tensor::from_elements({part.last_row - part.row, part.last_col - part.col}, dtypes::fp32,
                                              numbers, MemoryKind::kWorkspace);
  QuantSpec spec = data.grid.spec;
  spec.granularity = data.grid.shared ? Granularity::tensor() : Granularity::channel(0);
  const QuantParams params = find_quantizer(spec.scheme).fit(spec, values);
  const auto take = [&](const std::shared_ptr<const Tensor>& from, std::vector<double>& to) {
    if (!from || to.empty()) return;
    const std::vector<double> fitted = from->elements();
    for (size_t i = 0; i < fitted.size(); ++i)
      to[data.scale_of(part.row + static_cast<int64_t>(i), part.col)] = fitted[i];
  };
  take(params.scale, state.scales);
  take(params.zero, state.zeros);
  take(params.offset, state.offsets);
}

namespace {

// Squared error of the values of a row's columns, each weighted by the mean square of its input.
double weighted_error(const LayerData& data, const double* w, int64_t row, const Part& part, double scale) {
  const Matrix& xx = data.sums.xx[static_cast<size_t>(row / (data.w.rows / data.groups))];
  const double lo = static_cast<double>(data.grid.lo), hi = static_cast<double>(data.grid.hi);
  double error = 0;
  for (int64_t k = part.col; k < part.last_col; ++k) {
    const double code = data.grid.signs ? (w[k] >= 0 ? 1.0 : -1.0) : std::clamp(std::nearbyint(w[k] / scale), lo, hi);
    const double d = scale * code - w[k];
    error += xx[k][k] * d * d;
  }
  return error;
}

}  // namespace

void search_scales(const LayerData& data, const Matrix& w, const Part& part, LayerState& state) {
  fit_scales(data, w, part, state);
  const bool ternary = data.grid.spec.dtype == dtypes::ternary;
  const int64_t first = ternary ? 40 : 20, last = ternary ? 260 : 130;
  const auto search = [&](int64_t from, int64_t to) {
    double& scale = state.scales[data.scale_of(from, part.col)];
    const double fitted = scale;
    double least = std::numeric_limits<double>::infinity();
    for (int64_t percent = first; percent <= last; ++percent) {
      const double tried = stored_scale(data.grid.spec, fitted * static_cast<double>(percent) / 100.0);
      double error = 0;
      for (int64_t row = from; row < to; ++row) error += weighted_error(data, w[row], row, part, tried);
      if (tried > 0 && error < least) least = error, scale = tried;
    }
  };
  if (data.grid.shared) return search(part.row, part.last_row);
  parallel_for(part.last_row - part.row, [&](int64_t i) { search(part.row + i, part.row + i + 1); });
}

}  // namespace bitgrad::detail
