// Muon: Jordan 2024, kellerjordan.github.io/posts/muon; scale rms: Liu et al. 2025, arXiv 2502.16982.
//   m = lerp(m, g, 1 - mu);  u = nesterov ? lerp(g, m, mu) : m;  o = orthogonalized u (optim/orthogonalize.h)
//   w -= (lr * wd) * w;  w -= lr * (scale * o)
// NorMuon: Li et al. 2025, arXiv 2510.05491. Between them, per matrix with rows r:
//   v_r = lerp(v_r, mean over columns of o^2, 1 - b2);  o_r = o_r * (1 / (sqrt(v_r) + 1e-10))
//   o = o * (norm before / (norm after + 1e-10))
// Each of the matrices stacked in a weight is orthogonalized and scaled alone.
#include <cmath>
#include <limits>

#include "bitgrad/optim/update_rule.h"
#include "bitgrad/tensor/tensor.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "optim/map/rules.h"
#include "optim/orthogonalize.h"
#include "optim/rule_steps.h"

namespace bitgrad {
namespace {

constexpr float kRowEps = 1e-10f;

float scale_of(UpdateScale scale, int64_t rows, int64_t cols) {
  const double ratio = static_cast<double>(rows) / static_cast<double>(cols);
  if (scale == UpdateScale::kRms) return static_cast<float>(0.2 * std::sqrt(static_cast<double>(std::max(rows, cols))));
  return scale == UpdateScale::kSpectral ? static_cast<float>(std::sqrt(std::max(1.0, ratio))) : 1.0f;
}

class Muon final : public UpdateRule {
 public:
  Muon(const OptimizerSpec& spec, bool normalizes_rows)
      : how_(detail::newton_schulz(spec)),
        momentum_(*spec.momentum),
        nesterov_(*spec.nesterov),
        beta2_(*spec.beta2),
        scale_(spec.scale),
        normalizes_rows_(normalizes_rows) {}

  std::string_view family() const override { return normalizes_rows_ ? "normuon" : "muon"; }
  std::vector<Moment> moments(const Shape&) const override {
    const Moment momentum{.name = "momentum", .values = MomentValues::kMatrix};
    if (!normalizes_rows_) return {momentum};
    return {momentum, {.name = "v", .values = MomentValues::kSquares, .extent = Extent::kRows}};
  }
  bool on_device() const override { return true; }
  bool live() const override { return true; }
  bool whole_matrix() const override { return true; }
  bool hidden_only() const override { return true; }

  void prepare(const UpdatePiece& piece) const override {
    run_map(maps::MixMomentum{momentum_, piece.momentum_factor, piece.live, nesterov_, piece.state[0], piece.g},
            piece.n);
  }
  void direct(const UpdateMatrix& matrix) const override {
    int64_t row = 0;
    for (size_t i = 0; i < matrix.stacked.size();) {
      const int64_t rows = matrix.stacked[i];
      int64_t count = 0;
      for (; i < matrix.stacked.size() && matrix.stacked[i] == rows; ++i) ++count;
      float* const x = matrix.g + row * matrix.cols;
      detail::orthogonalize(how_, count, rows, matrix.cols, x);
      if (normalizes_rows_)
        for (int64_t j = 0; j < count; ++j)
          normalize_rows(rows, matrix.cols, x + j * rows * matrix.cols, matrix.state[0] + row + j * rows);
      const int64_t n = count * rows * matrix.cols;
      kernels::scale(n, x, scale_of(scale_, rows, matrix.cols), x);
      row += count * rows;
    }
  }
  int64_t macs(int64_t rows, int64_t cols) const override { return detail::orthogonalize_macs(how_, 1, rows, cols); }
  void update(const UpdatePiece& piece) const override { detail::directed_step(piece); }

 private:
  void normalize_rows(int64_t rows, int64_t cols, float* o, float* v) const {
    const Tensor sums = Tensor::empty({rows + 3}, dtypes::fp32, MemoryKind::kWorkspace);
    float *const of_rows = sums.as<float>(), *const before = of_rows + rows, *const after = before + 1,
                 *const by = after + 1;
    const int64_t n = rows * cols;
    detail::sum_squares_into(kernels::ReduceAxis::kAll, 1, n, o, before);
    detail::sum_squares_into(kernels::ReduceAxis::kRows, rows, cols, o, of_rows);
    const auto a = static_cast<float>(1.0 - beta2_), b = static_cast<float>(beta2_);
    run_map(maps::FollowMeans{a, b, nullptr, -1, static_cast<float>(cols), of_rows, v}, rows);
    run_map(maps::DivideRowsByRoots{v, kRowEps, cols, o}, rows, rows_per_task(cols));
    detail::sum_squares_into(kernels::ReduceAxis::kAll, 1, n, o, after);
    run_map(maps::KeepNorm{before, after, kRowEps, by}, 1);
    run_map(maps::ScaleByScalar{by, o}, n);
  }

  detail::NewtonSchulz how_;
  float momentum_;
  bool nesterov_;
  double beta2_;
  UpdateScale scale_;
  bool normalizes_rows_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_muon(const OptimizerSpec& spec) { return std::make_unique<Muon>(spec, false); }
std::unique_ptr<UpdateRule> make_normuon(const OptimizerSpec& spec) { return std::make_unique<Muon>(spec, true); }

}  // namespace bitgrad
