// Learner: model, optimizer, requantization policy and counters: everything that one step of training moves, and all
// that a checkpoint holds.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/nn/module.h"
#include "bitgrad/optim/optimizer.h"
#include "bitgrad/optim/requant.h"

namespace bitgrad {

// A loss: sum over samples (docs/numerics.md section 6).
using LossFunction = std::function<Var(const Var& logits, std::span<const int32_t> labels)>;
std::vector<std::string> loss_names();
// Throws Error for an unknown name.
LossFunction find_loss(const std::string& name);

struct StepResult {
  double loss = 0;      // sum over the microbatch
  int64_t correct = 0;  // rows whose largest logit is the label's
  int64_t samples = 0;
  bool stepped = false;  // the optimizer ran: a boundary where a checkpoint may lie
};

class Learner {
 public:
  // `model` is initialized here under the path "layers" with `seed`; `learning_rate(step)` gives the rate of an
  // optimizer step. bf16 gradients are summed with stochastic rounding when policy.accumulate > 8. A parameter without
  // a master changes its codes at every optimizer step, so it needs policy.every == policy.accumulate; else Error.
  Learner(std::shared_ptr<Module> model, LossFunction loss, const OptimizerSpec& optimizer, const RequantPolicy& policy,
          std::function<float(int64_t)> learning_rate, uint64_t seed);

  // Modules point at the learner's step state.
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;

  // Layouts for these numbers of rows (0: none), and a check that the model takes [rows, features] fp32 and gives
  // `classes` numbers.
  void plan(int64_t features, int64_t classes, int64_t train_rows, int64_t eval_rows);

  // One microbatch: forward, backward; after the last one of a window the optimizer steps, and the masters are
  // requantized when due. x [n, features] fp32. Throws Error(kNonFinite) that names the tensor when a value or gradient
  // is not finite; nothing was updated then, unless usable() says so. After any Error that leaves the learner usable
  // the open window is dropped: the next microbatch begins a new one.
  // Windows of one microbatch: updates run inside backward where they can be fused (fused_updates).
  StepResult microbatch(const Tensor& x, std::span<const int32_t> labels);
  // Whether an Error did not come in the middle of the updates: masters and codes would belong to no step. What is not
  // usable throws Error when it is trained, evaluated or saved.
  bool usable() const { return !optimizer_->half_moved(); }
  void check_usable() const;
  // Of the last step: the parameters whose updates ran inside backward, and why others did not.
  std::vector<Optimizer::FusedUpdate> fused_updates() const;
  // Steps with what the window holds so far (if anything), and requantizes: the end of a run. Errors as microbatch.
  void flush();
  // Logits without a tape, in evaluation mode.
  Tensor predict(const Tensor& x);
  // Loss and hits of one batch in evaluation mode.
  StepResult evaluate(const Tensor& x, std::span<const int32_t> labels);

  Module& model() { return *model_; }
  Optimizer& optimizer() { return *optimizer_; }
  StepState& state() { return state_; }
  const RequantPolicy& policy() const { return policy_; }
  // Of an optimizer step, counted from 0; state().step is the next one.
  float learning_rate(int64_t step) const { return learning_rate_(step); }
  // Optimizer steps of the whole run, for what anneals along it (rule tanh): state().progress becomes step / steps
  // before each microbatch, at most 1. 0: not known, progress stays 0.
  void set_total_steps(int64_t steps);
  // Samples in the open window: 0 on a step boundary.
  int64_t window_samples() const { return window_samples_; }
  // Microbatches since the masters became codes: part of a checkpoint.
  int64_t since_requantize() const { return since_requantize_; }
  // Forgets the open window: its gradients, what its forward passes found that is not finite, and its microbatches in
  // since_requantize().
  void drop_window();
  // Goes on at a step boundary of another run.
  void set_counters(int64_t step, int64_t microbatch, int64_t since_requantize);

 private:
  void begin_microbatch();
  StepResult run_microbatch(const Tensor& x, std::span<const int32_t> labels);
  void backward(Tape& tape, const Var& loss, int64_t samples);
  void end_failed_window();
  std::optional<RequantKey> due_after(int64_t microbatches) const;
  void end_window();
  void requantize();
  void check_flags(const char* when);

  StepState state_;
  std::shared_ptr<Module> model_;
  LossFunction loss_;
  std::unique_ptr<Optimizer> optimizer_;
  RequantPolicy policy_;
  std::function<float(int64_t)> learning_rate_;
  std::vector<Parameter*> parameters_;
  int64_t window_microbatches_ = 0, window_samples_ = 0;
  int64_t since_requantize_ = 0;
  int64_t total_steps_ = 0;
};

}  // namespace bitgrad
