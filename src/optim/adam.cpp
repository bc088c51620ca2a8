// Adam: Kingma and Ba 2015, arXiv 1412.6980, algorithm 1. Weight decay is added to the gradient.
// AdamW: Loshchilov and Hutter 2019, arXiv 1711.05101, algorithm 2. Weight decay is decoupled.
//   m = lerp(m, g, 1-b1);  v = lerp(v, g*g, 1-b2);  w -= lr*((m/c1)/(sqrt(v/c2)+eps)),  c = 1 - b^t
// t counts the updates of a parameter, so that one that joins later is corrected from its first update on.
#include "bitgrad/optim/update_rule.h"
#include "kernels/elementwise.h"
#include "optim/power.h"

namespace bitgrad {
namespace {

class AdamFamily : public UpdateRule {
 public:
  // decoupled: first w -= (lr*weight_decay)*w; otherwise weight_decay*w is added to the gradient.
  AdamFamily(const OptimizerSpec& spec, bool decoupled)
      : beta1_(*spec.beta1), beta2_(*spec.beta2), eps_(spec.eps), decoupled_(decoupled) {}
  std::string_view family() const override { return "adam"; }
  std::vector<Moment> moments(const Shape&) const override {
    return {{"m"}, {.name = "v", .values = MomentValues::kSquares, .stochastic = true}};
  }
  bool on_device() const override { return true; }
  bool live() const override { return true; }
  UpdateAge age_of(int64_t updates) const override {
    const auto correction = [&](double beta) { return static_cast<float>(1 - detail::power(beta, updates + 1)); };
    return {.updates = updates, .c1 = correction(beta1_), .c2 = correction(beta2_)};
  }
  std::optional<kernels::RowUpdate> row_update(const UpdatePiece& piece) const override { return of(piece); }
  void update(const UpdatePiece& piece) const override { kernels::adam_update(of(piece)); }

 private:
  kernels::AdamArgs of(const UpdatePiece& piece) const {
    kernels::AdamArgs args;
    args.n = piece.n;
    args.w = piece.w;
    args.g = piece.g;
    args.m = piece.state[0];
    args.v = piece.state[1];
    args.lr = piece.lr;
    args.a1 = static_cast<float>(1.0 - beta1_);
    args.a2 = static_cast<float>(1.0 - beta2_);
    args.b1 = static_cast<float>(beta1_);
    args.b2 = static_cast<float>(beta2_);
    args.eps = eps_;
    args.c1 = piece.age.c1;
    args.c2 = piece.age.c2;
    args.weight_decay = piece.weight_decay;
    args.decoupled = decoupled_;
    args.live = piece.live;
    args.lr_factor = piece.lr_factor;
    args.base_decay = piece.base_decay;
    args.age = piece.age.place;
    return args;
  }

  double beta1_, beta2_;
  float eps_;
  bool decoupled_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_adam(const OptimizerSpec& spec) { return std::make_unique<AdamFamily>(spec, false); }
std::unique_ptr<UpdateRule> make_adamw(const OptimizerSpec& spec) { return std::make_unique<AdamFamily>(spec, true); }

}  // namespace bitgrad
