// Lion: Chen et al. 2023, arXiv 2302.06675, algorithm 2. Weight decay is decoupled.
//   u = lerp(m, g, 1 - b1);  w -= (lr * wd) * w;  w -= lr * sign(u);  m = lerp(m, g, 1 - b2)
#include "bitgrad/optim/update_rule.h"
#include "optim/rule_steps.h"

namespace bitgrad {
namespace {

class Lion final : public UpdateRule {
 public:
  explicit Lion(const OptimizerSpec& spec) : beta1_(*spec.beta1), beta2_(*spec.beta2) {}
  std::string_view family() const override { return "lion"; }
  std::vector<Moment> moments(const Shape&) const override { return {{"m"}}; }
  bool on_device() const override { return true; }
  bool live() const override { return true; }
  void update(const UpdatePiece& piece) const override {
    run_map(maps::LionUpdate{detail::rate_of(piece), static_cast<float>(1.0 - beta1_), static_cast<float>(beta1_),
                             static_cast<float>(1.0 - beta2_), static_cast<float>(beta2_), piece.g, piece.w,
                             piece.state[0]},
            piece.n);
  }

 private:
  double beta1_, beta2_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_lion(const OptimizerSpec& spec) { return std::make_unique<Lion>(spec); }

}  // namespace bitgrad
