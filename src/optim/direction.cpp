// The direction of rules that need the whole gradient (UpdateRule::whole_matrix). docs/numerics.md section 6.
#include "bitgrad/base/step_scalars.h"
#include "nn/row_params.h"
#include "optim/finish.h"
#include "optim/matrix_parts.h"
#include "optim/row_step.h"

namespace bitgrad::detail {

Tensor RowStep::direction(const Tensor& sums, bool finished) {
  const Tensor x = number_rows(p_, 0, p_.shape().rows());
  Tensor g = as_matrix(sums);
  if (!finished) {
    g = gradient_rows(p_, 0, g.rows());
    ensure(g.data() != p_.grad().data(), "optimizer", "an fp32 gradient is finished before");
    finish_rows(p_, spec_, now_.count, 0, g, x, {});
  }
  scale_by_norm(g.numel(), g.as<float>());
  const auto prepare = [&](int64_t at, int64_t n, std::span<float* const> state) {
    rule_.prepare(piece(n, x.as<float>() + at, g.as<float>() + at, state));
  };
  moments_.for_pieces(0, g.numel(), draws(Purpose::kMoment), prepare);
  const std::vector<float*> lines = moments_.lines();
  const std::vector<int64_t> stacked = stacked_rows(p_);
  UpdateMatrix matrix;
  matrix.rows = g.rows();
  matrix.cols = g.cols();
  matrix.stacked = stacked;
  matrix.w = x.as<float>();
  matrix.g = g.as<float>();
  matrix.state = lines;
  matrix.age = now_.age;
  matrix.live = step_scalars();
  if (g.numel() > 0) rule_.direct(matrix);
  return g;
}

}  // namespace bitgrad::detail
