// Bop, for weights that are signs without a master (Helwegen et al. 2019, arXiv 1906.02107, algorithm 1):
//   m = lerp(m, g, gamma), i.e. (1-gamma)*m + gamma*g;  w = -w where abs m > threshold and sign m = sign w.
// gamma follows the learning rate schedule: gamma = min(bop.gamma * (lr / base_lr), 1), in double, rounded once; if
// base_lr is 0, gamma is constant.
#include <algorithm>

#include "bitgrad/optim/update_rule.h"
#include "kernels/elementwise.h"

namespace bitgrad {
namespace {

class Bop final : public UpdateRule {
 public:
  explicit Bop(const OptimizerSpec& spec) : spec_(spec) {}
  std::string_view family() const override { return "bop"; }
  // gamma is far below the resolution of bf16, so rounding to nearest would stall.
  std::vector<Moment> moments(const Shape&) const override { return {{.name = "m", .stochastic = true}}; }
  bool flips_signs() const override { return true; }
  bool on_device() const override { return true; }
  bool live() const override { return true; }
  void update(const UpdatePiece& piece) const override {
    const double part = spec_.base_lr > 0 ? static_cast<double>(piece.lr) / spec_.base_lr : 1.0;
    kernels::BopArgs args;
    args.n = piece.n;
    args.w = piece.w;
    args.m = piece.state[0];
    args.g = piece.g;
    args.gamma = static_cast<float>(std::min(static_cast<double>(spec_.bop.gamma) * part, 1.0));
    args.threshold = spec_.bop.threshold;
    if (spec_.base_lr > 0) args.live = piece.live;
    args.lr_factor = piece.lr_factor;
    args.base_gamma = spec_.bop.gamma;
    args.base_lr = spec_.base_lr;
    kernels::bop_update(args);
  }

 private:
  OptimizerSpec spec_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_bop(const OptimizerSpec& spec) { return std::make_unique<Bop>(spec); }

}  // namespace bitgrad
