// Adafactor: Shazeer and Stern 2018, arXiv 1804.04235, algorithms 4 and 5, as torch.optim.Adafactor. Weight decay is
// decoupled. With t = updates, this one included:
//   a = t^-0.8;  R = lerp(R, means of g^2 over columns, a);  C = lerp(C, means over rows, a)
//   u = g / sqrt(max(R C^T / max(mean R, e1), e1^2)), e1 = 2^-23; a vector has its own V = lerp(V, g^2, a) instead
//   u = u * max(1e-3, rms w) / max(1, rms u);  w -= (lr * wd) * w;  w -= min(lr, t^-0.5) * u
#include <cmath>

#include "bitgrad/tensor/tensor.h"
#include "kernels/reduce.h"
#include "optim/rule_steps.h"

namespace bitgrad {
namespace {

constexpr float kLeastMean = 0x1p-23f, kLeastSize = 1e-3f, kMostChange = 1.0f;

// t^-0.8 in double by additions, products and quotients alone: Newton's iteration for the fifth root.
double slow_power(int64_t t) {
  const auto x = static_cast<double>(t);
  double root = static_cast<double>(math::exp(0.2f * math::log(static_cast<float>(t))));
  for (int i = 0; i < 3; ++i) {
    const double fourth = root * root * root * root;
    root = root - (fourth * root - x) / (5 * fourth);
  }
  const double square = root * root;
  return 1 / (square * square);
}

class Adafactor final : public UpdateRule {
 public:
  std::string_view family() const override { return "adafactor"; }
  std::vector<Moment> moments(const Shape& shape) const override {
    if (!factored(shape)) return {{.name = "v", .values = MomentValues::kSquares, .stochastic = true}};
    return {{.name = "r", .values = MomentValues::kSquares, .extent = Extent::kRows},
            {.name = "c", .values = MomentValues::kSquares, .extent = Extent::kColumns}};
  }
  bool on_device() const override { return true; }
  bool live() const override { return true; }
  bool whole_matrix() const override { return true; }
  UpdateAge age_of(int64_t updates) const override {
    const auto t = static_cast<double>(updates + 1);
    return {updates, static_cast<float>(slow_power(updates + 1)), static_cast<float>(1 / std::sqrt(t))};
  }

  void prepare(const UpdatePiece& p) const override {
    if (p.state.empty()) return;
    const float least = kLeastMean * kLeastMean;
    run_map(maps::DivideByRoot{p.age.c1, p.live, p.age.place, least, p.state[0], p.g}, p.n);
  }
  void direct(const UpdateMatrix& m) const override {
    const Tensor scalars = Tensor::empty({4}, dtypes::fp32, MemoryKind::kWorkspace);
    float *const squares_of_w = scalars.as<float>(), *const squares_of_g = squares_of_w + 1,
                 *const sum_of_rows = squares_of_g + 1, *const by = sum_of_rows + 1;
    if (!m.state.empty()) divide_by_factored(m, sum_of_rows);
    const int64_t n = m.rows * m.cols;
    detail::sum_squares_into(kernels::ReduceAxis::kAll, 1, n, m.w, squares_of_w);
    detail::sum_squares_into(kernels::ReduceAxis::kAll, 1, n, m.g, squares_of_g);
    run_map(maps::RelativeSize{squares_of_w, squares_of_g, static_cast<float>(n), kLeastSize, kMostChange, by}, 1);
    run_map(maps::ScaleByScalar{by, m.g}, n);
  }
  void update(const UpdatePiece& p) const override {
    run_map(maps::DirectedStep{detail::rate_of(p), p.age.c2, p.age.place, p.g, p.w}, p.n);
  }

 private:
  static bool factored(const Shape& shape) { return shape.rank() >= 2; }

  static void divide_by_factored(const UpdateMatrix& m, float* sum_of_rows) {
    const Tensor sums = Tensor::empty({m.rows + m.cols}, dtypes::fp32, MemoryKind::kWorkspace);
    float *const of_rows = sums.as<float>(), *const of_columns = of_rows + m.rows;
    float *const r = m.state[0], *const c = m.state[1];
    detail::sum_squares_into(kernels::ReduceAxis::kRows, m.rows, m.cols, m.g, of_rows);
    detail::sum_squares_into(kernels::ReduceAxis::kColumns, m.rows, m.cols, m.g, of_columns);
    const float a = m.age.c1, b = 1.0f - a;
    run_map(maps::FollowMeans{a, b, m.live, m.age.place, static_cast<float>(m.cols), of_rows, r}, m.rows);
    run_map(maps::FollowMeans{a, b, m.live, m.age.place, static_cast<float>(m.rows), of_columns, c}, m.cols);
    kernels::ReduceArgs total;
    total.rows = 1;
    total.cols = total.ldx = m.rows;
    total.x = r;
    total.out = sum_of_rows;
    kernels::reduce(total);
    run_map(maps::DivideByFactored{r, c, sum_of_rows, static_cast<float>(m.rows), kLeastMean, m.cols, m.g}, m.rows,
            rows_per_task(m.cols));
  }
};

}  // namespace

std::unique_ptr<UpdateRule> make_adafactor(const OptimizerSpec&) { return std::make_unique<Adafactor>(); }

}  // namespace bitgrad
