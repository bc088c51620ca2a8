// Shared by Adam and AdamW: state and bias correction.
//   m = lerp(m, g, 1-b1);  v = lerp(v, g*g, 1-b2);  w -= lr*((m/c1)/(sqrt(v/c2)+eps)),  c = 1 - b^t
#pragma once

#include "bitgrad/base/step_scalars.h"
#include "bitgrad/kernels/elementwise.h"
#include "bitgrad/optim/update_rule.h"

namespace bitgrad::detail {

class AdamFamily : public UpdateRule {
 public:
  // decoupled: first w -= (lr*weight_decay)*w; otherwise weight_decay*w is added to the gradient.
  AdamFamily(const OptimizerSpec& spec, bool decoupled) : spec_(spec), decoupled_(decoupled) {}
  std::string_view family() const override { return "adam"; }
  std::vector<Part> parts() const override { return {{"m"}, {.name = "v", .square = true, .stochastic = true}}; }
  bool on_device() const override { return true; }
  bool live() const override { return true; }
  void write_scalars(StepScalars& live) const override {
    live.c1 = static_cast<float>(1 - power1_);
    live.c2 = static_cast<float>(1 - power2_);
  }
  // b^t in double, by repeated multiplication.
  void begin_step(int64_t) override {
    power1_ *= spec_.beta1;
    power2_ *= spec_.beta2;
  }
  // b^t only decreases: once a correction is 1 in fp32, it stays 1.
  bool settled() const override {
    return static_cast<float>(1 - power1_) == 1.0f && static_cast<float>(1 - power2_) == 1.0f;
  }
  void reset() override { power1_ = power2_ = 1; }
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
    args.a1 = static_cast<float>(1.0 - spec_.beta1);
    args.a2 = static_cast<float>(1.0 - spec_.beta2);
    args.b1 = static_cast<float>(spec_.beta1);
    args.b2 = static_cast<float>(spec_.beta2);
    args.eps = spec_.eps;
    args.c1 = static_cast<float>(1 - power1_);
    args.c2 = static_cast<float>(1 - power2_);
    args.weight_decay = piece.weight_decay;
    args.decoupled = decoupled_;
    args.live = piece.live;
    args.lr_factor = piece.lr_factor;
    return args;
  }

  OptimizerSpec spec_;
  bool decoupled_;
  double power1_ = 1, power2_ = 1;
};

}  // namespace bitgrad::detail
