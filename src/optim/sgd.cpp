// SGD with momentum: b = mu*b + g, w -= lr*b (Sutskever et al. 2013; nesterov: w -= lr*(g + mu*b)). Weight decay is
// added to the gradient: g = g + weight_decay*w.
#include "bitgrad/optim/update_rule.h"
#include "kernels/elementwise.h"

namespace bitgrad {
namespace {

class Sgd final : public UpdateRule {
 public:
  explicit Sgd(const OptimizerSpec& spec) : momentum_(*spec.momentum), nesterov_(*spec.nesterov) {}
  std::string_view family() const override { return "sgd"; }
  std::vector<Moment> moments(const Shape&) const override {
    return momentum_ > 0 ? std::vector<Moment>{{"momentum"}} : std::vector<Moment>{};
  }
  bool on_device() const override { return true; }
  bool live() const override { return true; }
  std::optional<kernels::RowUpdate> row_update(const UpdatePiece& piece) const override { return of(piece); }
  void update(const UpdatePiece& piece) const override { kernels::sgd_update(of(piece)); }

 private:
  kernels::SgdArgs of(const UpdatePiece& piece) const {
    kernels::SgdArgs args;
    args.n = piece.n;
    args.w = piece.w;
    args.g = piece.g;
    args.momentum_buffer = piece.state.empty() ? nullptr : piece.state[0];
    args.lr = piece.lr;
    args.mu = momentum_ * piece.momentum_factor;
    args.weight_decay = piece.weight_decay;
    args.nesterov = nesterov_;
    args.live = piece.live;
    args.lr_factor = piece.lr_factor;
    args.base_decay = piece.base_decay;
    args.base_mu = momentum_;
    return args;
  }

  float momentum_;
  bool nesterov_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_sgd(const OptimizerSpec& spec) { return std::make_unique<Sgd>(spec); }

}  // namespace bitgrad
