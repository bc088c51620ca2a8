// adaround: codes rounded up or down, whichever gives the outputs the least error together (Nagel et al. 2020, arXiv
// 2004.10568). Codes are c + h(v), c and c + 1 the codes before this step and the neighbor on the side of w / s, h(v) =
// clip(1.2 sigmoid(v) - 0.1, 0, 1). v minimizes, by Adam, the error of the outputs plus a term that drives h to 0 or 1:
// lambda sum (1 - |2 h - 1|^beta), beta from 20 to 2 after the first fifth of the steps. The error is that of all
// samples at once, from their sums: E|y - w x - b|^2, with the best b if the layer has a bias; per row it is divided by
// s^2 mean(diag H), so that lambda means the same in every layer.
#include <algorithm>
#include <cmath>

#include "bitgrad/base/parallel.h"
#include "tools/ptq/method.h"

namespace bitgrad::detail {
namespace {

constexpr int kSteps = 1000, kFree = kSteps / 5;  // free: without the second term
constexpr double kRate = 0.01, kLambda = 0.1, kFirstBeta = 20, kLastBeta = 2;
constexpr double kFirstDecay = 0.9, kSecondDecay = 0.999, kEps = 1e-8;  // of Adam
constexpr double kStretch = 1.2, kBelow = -0.1;
constexpr int64_t kMostRounded = 2048;  // each step multiplies all rows by the matrix of products of inputs

// One group of channels: H and E y x^T, less the means of a layer with a bias.
struct Problem {
  Matrix h = {}, yx = {};
  int64_t row = 0;
  double mean = 0;  // of the diagonal of H
};

Problem problem_of(const LayerData& data, bool biased, int64_t g) {
  const auto group = static_cast<size_t>(g);
  Problem p{data.sums.xx[group], data.sums.yx[group], g * (data.w.rows / data.groups)};
  const int64_t k = p.h.rows;
  const auto mean_of = [&](int64_t j) { return biased ? data.sums.x[group][static_cast<size_t>(j)] : 0.0; };
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < k; ++j) p.h[i][j] -= mean_of(i) * mean_of(j);
  for (int64_t i = 0; i < p.yx.rows; ++i)
    for (int64_t j = 0; j < k; ++j) p.yx[i][j] -= data.sums.y[static_cast<size_t>(p.row + i)] * mean_of(j);
  for (int64_t i = 0; i < k; ++i) p.mean += p.h[i][i] / static_cast<double>(k);
  return p;
}

// v and its moments, of the rows of a group.
struct Rounding {
  Matrix floors = {}, v = {}, m = {}, u = {};

  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
  static double up(double v) { return std::clamp(kStretch * sigmoid(v) + kBelow, 0.0, 1.0); }
};

class Adaround final : public PtqMethod {
 public:
  std::string_view name() const override { return "adaround"; }
  std::string_view doc() const override { return "codes rounded up or down, by descent on the error of the outputs"; }
  std::string refuses(const LayerData& data, const LayerState&) const override {
    if (data.grid.signs) return "its codes are signs, which have no neighbors";
    return data.w.cols <= kMostRounded ? "" : concat("it has ", data.w.cols, " inputs, more than ", kMostRounded);
  }
  LayerState layer(const LayerData& data, const LayerState& state, const PtqSpec&) const override {
    LayerState to = state;
    const bool biased = !state.bias.empty();
    for (int64_t g = 0; g < data.groups; ++g) {
      const Problem p = problem_of(data, biased, g);
      if (p.mean > 0) round(data, p, to);
    }
    const int64_t part = data.w.rows / data.groups;
    for (int64_t o = 0; biased && o < data.w.rows; ++o) {
      double mean = data.sums.y[static_cast<size_t>(o)];
      for (int64_t k = 0; k < data.w.cols; ++k)
        mean -= value_of(data, to, o, k) * data.sums.x[static_cast<size_t>(o / part)][static_cast<size_t>(k)];
      to.bias[static_cast<size_t>(o)] = static_cast<double>(static_cast<float>(mean));
    }
    return to;
  }

 private:
  static Rounding start(const LayerData& data, const Problem& p, const LayerState& state) {
    const int64_t rows = p.yx.rows, k = p.yx.cols;
    Rounding r{Matrix(rows, k), Matrix(rows, k), Matrix(rows, k), Matrix(rows, k)};
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < k; ++j) {
        const size_t s = data.scale_of(p.row + i, j);
        const double zero = state.zeros.empty() ? 0.0 : state.zeros[s],
                     offset = state.offsets.empty() ? 0.0 : state.offsets[s];
        const double code = std::clamp((data.w[p.row + i][j] - offset) / state.scales[s] + zero,
                                       static_cast<double>(data.grid.lo), static_cast<double>(data.grid.hi));
        const double now = state.codes[p.row + i][j];
        r.floors[i][j] = std::min(now > code ? now - 1 : now, static_cast<double>(data.grid.hi - 1));
        double h = std::clamp(code - r.floors[i][j], 0.0, 1.0);
        if ((h >= 0.5 ? 1.0 : 0.0) != now - r.floors[i][j]) h = (h + now - r.floors[i][j]) / 2;
        const double part = (h - kBelow) / kStretch;
        r.v[i][j] = std::log(part / (1 - part));
      }
    return r;
  }

  static void round(const LayerData& data, const Problem& p, LayerState& to) {
    const int64_t rows = p.yx.rows, k = p.yx.cols;
    Rounding r = start(data, p, to);
    const auto set_codes = [&](int64_t i, bool hard) {
      for (int64_t j = 0; j < k; ++j) {
        const double h = Rounding::up(r.v[i][j]);
        to.codes[p.row + i][j] = r.floors[i][j] + (!hard ? h : h >= 0.5 ? 1.0 : 0.0);
      }
    };
    Matrix values(rows, k);
    for (int step = 1; step <= kSteps; ++step) {
      parallel_ranges(rows, 8, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          set_codes(i, false);
          for (int64_t j = 0; j < k; ++j) values[i][j] = value_of(data, to, p.row + i, j);
        }
      });
      const Matrix product = multiplied(values, p.h);
      parallel_ranges(rows, 8, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) descend(data, p, to, product[i], i, step, r);
      });
    }
    for (int64_t i = 0; i < rows; ++i) set_codes(i, true);
  }

  // A step of Adam for the row `i` of the group; `product`: its values times H.
  static void descend(const LayerData& data, const Problem& p, const LayerState& state, const double* product,
                      int64_t i, int step, Rounding& r) {
    const double past = static_cast<double>(step - kFree) / static_cast<double>(kSteps - kFree);
    const double beta = kFirstBeta + (kLastBeta - kFirstBeta) * std::max(past, 0.0);
    const double first = 1 - std::pow(kFirstDecay, step), second = 1 - std::pow(kSecondDecay, step);
    for (int64_t j = 0; j < p.yx.cols; ++j) {
      const double sigmoid = Rounding::sigmoid(r.v[i][j]), h = kStretch * sigmoid + kBelow;
      const double scale = state.scales[data.scale_of(p.row + i, j)];
      // d error / d h = 2 s (w H - E y x^T), divided by s^2 mean
      double slope = 2 * (product[j] - p.yx[i][j]) / (scale * p.mean);
      const double off = 2 * std::clamp(h, 0.0, 1.0) - 1;
      if (step > kFree) slope -= kLambda * beta * 2 * std::copysign(std::pow(std::abs(off), beta - 1), off);
      const double g = h > 0 && h < 1 ? slope * kStretch * sigmoid * (1 - sigmoid) : 0.0;
      double &m = r.m[i][j], &u = r.u[i][j];
      m = kFirstDecay * m + (1 - kFirstDecay) * g;
      u = kSecondDecay * u + (1 - kSecondDecay) * g * g;
      r.v[i][j] -= kRate * (m / first) / (std::sqrt(u / second) + kEps);
    }
  }
};

}  // namespace

std::unique_ptr<PtqMethod> make_Adaround() { return std::make_unique<Adaround>(); }

}  // namespace bitgrad::detail
