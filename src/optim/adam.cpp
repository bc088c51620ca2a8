// Adam (Kingma and Ba 2015, arXiv 1412.6980, algorithm 1) and AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101,
// algorithm 2).
//   m = b1*m + (1-b1)*g;  v = b2*v + ((1-b2)*g)*g;  w -= lr*((m/c1)/(sqrt(v/c2)+eps)),  c = 1 - b^t
#include "bitgrad/kernels/elementwise.h"
#include "bitgrad/optim/optimizer.h"

namespace bitgrad {
namespace {

class Adam final : public Optimizer {
 public:
  Adam(const OptimizerSpec& spec, bool decoupled) : Optimizer(spec), decoupled_(decoupled) {}

  void set_steps(int64_t steps) override {
    Optimizer::set_steps(steps);
    power1_ = power2_ = 1;
    for (int64_t t = 0; t < steps; ++t) advance();
  }

 private:
  std::vector<std::string_view> parts() const override { return {"m", "v"}; }
  // b^t in double by repeated product.
  void advance() {
    power1_ *= spec_.beta1;
    power2_ *= spec_.beta2;
  }
  void begin_step() override { advance(); }
  void update(const Tensor& master, const Tensor& g, const std::vector<Tensor>& state, float lr) override {
    AdamArgs args;
    args.n = master.numel();
    args.w = master.as<float>();
    args.g = g.as<float>();
    args.m = state[0].as<float>();
    args.v = state[1].as<float>();
    args.lr = lr;
    args.b1 = static_cast<float>(spec_.beta1);
    args.b2 = static_cast<float>(spec_.beta2);
    args.eps = spec_.eps;
    args.c1 = static_cast<float>(1 - power1_);
    args.c2 = static_cast<float>(1 - power2_);
    args.weight_decay = spec_.weight_decay;
    args.decoupled = decoupled_;
    adam_update(args);
  }

  bool decoupled_;
  double power1_ = 1, power2_ = 1;
};

}  // namespace

std::unique_ptr<Optimizer> make_adam(const OptimizerSpec& spec) { return std::make_unique<Adam>(spec, false); }
std::unique_ptr<Optimizer> make_adamw(const OptimizerSpec& spec) { return std::make_unique<Adam>(spec, true); }

}  // namespace bitgrad
