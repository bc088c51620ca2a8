// SGD with momentum: b = mu*b + g, w -= lr*b (Sutskever et al. 2013; nesterov: w -= lr*(g + mu*b)).
#include "bitgrad/kernels/elementwise.h"
#include "bitgrad/optim/optimizer.h"

namespace bitgrad {
namespace {

class Sgd final : public Optimizer {
 public:
  using Optimizer::Optimizer;

 private:
  std::vector<std::string_view> parts() const override {
    return spec_.momentum > 0 ? std::vector<std::string_view>{"momentum"} : std::vector<std::string_view>{};
  }
  void update(const Tensor& master, const Tensor& g, const std::vector<Tensor>& state, float lr) override {
    SgdArgs args;
    args.n = master.numel();
    args.w = master.as<float>();
    args.g = g.as<float>();
    args.momentum_buffer = state.empty() ? nullptr : state[0].as<float>();
    args.lr = lr;
    args.mu = spec_.momentum;
    args.weight_decay = spec_.weight_decay;
    args.nesterov = spec_.nesterov;
    sgd_update(args);
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const OptimizerSpec& spec) { return std::make_unique<Sgd>(spec); }

}  // namespace bitgrad
