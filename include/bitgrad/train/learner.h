// Learner: model, optimizer, requantization policy and counters: everything that one step of training moves, and all
// that a checkpoint holds.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/data/dataset.h"
#include "bitgrad/dist/communicator.h"
#include "bitgrad/nn/prepare.h"
#include "bitgrad/optim/optimizer.h"
#include "bitgrad/optim/requant.h"
#include "bitgrad/train/loss.h"

namespace bitgrad {

namespace detail {
class WindowSums;
}
// The sum that a metric makes of one batch: outputs [n, .., o] and their target, both on the CPU; and those of a task.
using Measure = std::function<double(const Tensor& outputs, const Tensor& target)>;
using Measures = std::map<std::string, Measure>;
// Looks at the outputs of a batch and at its target.
using OutputHook = std::function<void(const Tensor& outputs, const Tensor& target)>;

struct StepResult {
  double loss = 0;      // sum over the elements of the target that count
  int64_t correct = 0;  // classes with the largest logit
  int64_t samples = 0;
  int64_t counted = 0;  // elements of the target that count
  // Of an evaluation alone.
  int64_t among_top5 = 0;    // classes that are among the five largest logits, where there are more than five
  double squared_error = 0;  // of values, summed
  std::map<std::string, double> measured = {};  // sums of metrics that have their own (Measures)
  bool stepped = false;                         // the optimizer ran: a boundary where a checkpoint may lie
};

// From optimizer step `from` on (before the first microbatch of its window) the model is held like this.
struct QuantPhase {
  int64_t from = 0;
  std::optional<PrepareSpec> spec = {};  // none: as before
  QuantMode mode = {};
};

// A phase that cannot be entered.
class PhaseError : public Error {
 public:
  PhaseError(const std::string& message, ErrorCode code, int64_t phase) : Error(message, code), phase_(phase) {}
  int64_t phase() const noexcept { return phase_; }  // its index

 private:
  int64_t phase_;
};

// In which order the gradients of a window's microbatches are added (docs/numerics.md section 6): one after another, or
// in a tree that several ranks share.
enum class WindowSum : uint8_t { kRunning, kTree };
std::string_view window_sum_name(WindowSum sum);  // running, tree

// What a model is planned for.
struct PlanSpec {
  Form input = {};      // shape of a sample, its dtype (fp32, or int32 for ids), `values`; the rest is not read
  int64_t outputs = 0;  // of the model, along its last axis; 0: any number
  // Of the targets: outputs have its axes, and that of the classes after them; or are as many values. none: not known.
  std::optional<TargetForm> target = {};
  int64_t train_samples = 0, eval_samples = 0;  // of a batch; 0: no layouts are planned
  // Something must train; false: the model is only evaluated, with the layouts of one that trains, so that the same
  // kernels are chosen.
  bool trains = true;
};

class Learner {
 public:
  // `model` is initialized here under the path "layers" with `seed`; `learning_rate(step)` gives the rate of an
  // optimizer step. bf16 gradients are summed with stochastic rounding when policy.accumulate > 8. A parameter without
  // a master changes its codes at every optimizer step, so it needs policy.every == policy.accumulate; else Error.
  // The learner lives on the device that is current here, which is that of the model: there it trains and evaluates,
  // whatever device is current then.
  Learner(std::shared_ptr<Module> model, LossFunction loss, const OptimizerSpec& optimizer, const RequantPolicy& policy,
          std::function<float(int64_t)> learning_rate, uint64_t seed);

  // Modules point at the learner's step state.
  ~Learner();
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;

  // Phases of quantization, `from` strictly ascending from 0 on; before the first microbatch. The first one is entered
  // now, the others when their step comes: masters become codes as at the end of a run, then layers change, layouts are
  // planned and the optimizer is attached anew; moments of parameters that stay are kept, and N counts from there.
  // All of them are tried now and, once the numbers of features are known, by plan, so that none fails in the middle of
  // a run; the numbers of the model stay. Throws PhaseError with what prepare, set_quant_mode, the layers' plan or the
  // optimizer say; the learner is of no further use then.
  void set_phases(std::vector<QuantPhase> phases);
  const std::vector<QuantPhase>& phases() const;
  // The index of the phase that the model is in; 0 without phases.
  int64_t phase() const;
  // Resume: the form of that phase, with numbers that load_checkpoint will replace.
  void enter_phase(int64_t index);
  // bitgrad::calibrate on the model (nn/prepare.h), with samples of any shape that evaluate takes.
  void calibrate(std::span<const Tensor> batches);
  // For good: the model keeps codes alone (nn/prepare.h), and is only evaluated from now on. Phases are over.
  void convert();
  bool converted() const { return converted_; }

  // Plans the layouts of training and evaluation, and checks that the model takes the input and gives the outputs.
  void plan(const PlanSpec& spec);
  // The same once more, with old layouts forgotten: after prepare, set_quant_mode, or a slot's set, from outside.
  // Work that was recorded is recorded anew. Nothing is planned before plan.
  void plan_again();

  // One microbatch: forward, backward; after the last one of a window the optimizer steps, and the masters are
  // requantized when due. x [n, sample...] of plan's dtype; another shape with the same number of values in a sample is
  // viewed as the planned one. Throws Error(kNonFinite) that names the tensor when a value
  // or gradient, the loss of a microbatch of the window, or a new number is not finite, and x with the place of the
  // number when x is what holds it; nothing was updated then,
  // unless usable() says so. After any Error that leaves the learner usable the open window is dropped: the next
  // microbatch begins a new one. Windows of one microbatch: updates run inside backward where they can be fused
  // (fused_updates). x lies on the learner's device. On one other than the CPU errors about numbers come when its flags
  // are read (kernels/flag.h), at the end of the microbatch at the latest, but for new numbers that are not finite:
  // those at the end of the next one.
  // target: what the loss takes, on the learner's device: classes int32 [n, ..], or values fp32 [n, ..]. counted: how
  // many elements of it count, -1: found here (classes of positions are counted, which waits for a device). The
  // optimizer divides by what counts in the window, whatever its microbatches have of it.
  StepResult microbatch(const Tensor& x, const Tensor& target, int64_t counted = -1);
  // With one class a sample, copied to the learner's device.
  StepResult microbatch(const Tensor& x, std::span<const int32_t> labels);
  // Whether no Error came in the middle of the updates, or of the entry of a phase: masters and codes would belong to
  // no step. What is not usable throws Error when it is trained, evaluated or saved: check_usable, which reads the
  // flags of a device first.
  bool usable() const;
  void check_usable() const;
  // Of the last step: the parameters whose updates ran inside backward, and why others did not.
  std::vector<Optimizer::FusedUpdate> fused_updates() const;
  // Steps with what the window holds so far (if anything), and requantizes: the end of a run. Errors as microbatch.
  void flush();
  // Logits without a tape, in evaluation mode. Error(kNonFinite) that names x when it is not finite (on a device other
  // than the CPU: where a quantizer or the loss finds it), or the layer whose quantizer takes NaN or Inf.
  Tensor predict(const Tensor& x);
  // Loss, and what metrics are made of, of one batch in evaluation mode. target: as microbatch. Throws
  // Error(kNonFinite) when the loss is not finite; other errors as predict.
  StepResult evaluate(const Tensor& x, const Tensor& target, int64_t counted = -1);
  StepResult evaluate(const Tensor& x, std::span<const int32_t> labels);
  // What evaluate measures too (train/metric.h), and the keys that the configuration gives metrics.
  void set_measures(Measures measures) { measures_ = std::move(measures); }
  // Sees the outputs [n, .., o] of every batch of evaluate, and their target, both on the CPU. Empty: nothing does.
  void set_output_hook(OutputHook hook) { output_hook_ = std::move(hook); }
  void set_metric_keys(std::map<std::string, Attributes> keys) { metric_keys_ = std::move(keys); }
  const std::map<std::string, Attributes>& metric_keys() const { return metric_keys_; }
  // Work of the host that is done once in every microbatch and predict on a device, after their work is queued and
  // before the host waits for it; it must not throw. Empty: none. Returns what it was. On the CPU it is not called.
  std::function<void()> set_meanwhile(std::function<void()> work) { return std::exchange(meanwhile_, std::move(work)); }

  // Of ids: attention reads documents apart, each of which ends with this id (Dataset::document_end); -1: as one. Until
  // it is set again, in training and evaluation.
  void set_document_end(int64_t id) { document_end_ = id; }
  int64_t document_end() const { return document_end_; }

  // What the model was planned for; nullptr before plan.
  const Form* input() const { return plan_ ? &plan_->input : nullptr; }

  Device device() const { return device_; }
  // Before the first microbatch. kTree: log2(A) + 1 buffers of the size of all gradients, and nothing is recorded.
  void set_window_sum(WindowSum sum);
  // Before the first microbatch: this learner is one rank of several, with the same model, seed and policy, that share
  // the A microbatches of each window: rank r is given those from r * A / size on, A / size of them. Sums are those of
  // a tree (kTree), so that any number of ranks gives the bits of one as long as A / size is a power of two; what
  // layers sum up over microbatches beside gradients (running statistics, observers) stays each rank's own. A must be a
  // multiple of the size. An Error of one rank ends all: the others throw Error(kDevice). Nothing is fused or recorded.
  void set_communicator(std::shared_ptr<Communicator> ranks);
  // Whether the work of a microbatch is recorded the second time that its form comes, and repeated by one call from
  // then on (base/device_work.h; CUDA graphs), where the device records. The numbers are those of the work done one by
  // one. From the second step on errors about new numbers that are not finite name the step that was recorded as well.
  void set_recorded(bool on);
  // Graphs that were launched so far, and why nothing is recorded (empty: it is, or was not asked for).
  int64_t recorded_launches() const;
  std::string not_recorded() const;
  Module& model() { return *model_; }
  const LossFunction& loss() const { return loss_; }
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
  class Step;       // train/step.h
  struct Outcome;   // of its stages
  class Graphs;     // train/step_graphs.h
  class Phases;     // train/phases.h
  class Evaluator;  // train/evaluation.h
  // The target of a microbatch, and how many of its elements count.
  struct Target {
    Tensor tensor;
    int64_t counted = 0;
  };
  void require_usable() const;
  Target checked(const Tensor& x, const Tensor& target, int64_t counted) const;
  Tensor labels_here(std::span<const int32_t> labels);
  void begin_microbatch();
  void round_gradients();
  void count_microbatch(const StepResult& result);
  void close_window(bool requantized);
  // Microbatches of a window that this rank runs, and those that the others run.
  int64_t own_microbatches() const { return ranks_ ? policy_.accumulate / ranks_->size() : policy_.accumulate; }
  int64_t others_microbatches() const { return policy_.accumulate - own_microbatches(); }
  void forget_recorded();
  StepResult run_microbatch(const Tensor& x, const Target& target);
  void run(Step& step, Graphs* graphs, StepResult& result);
  void do_meanwhile() const;
  void end_failed_window(const std::string& why);
  void note_input(const Tensor& x, int64_t microbatch);
  [[noreturn]] void fail_window(const Error& error, const Tensor& x, int64_t microbatch);
  std::optional<RequantKey> due_after(int64_t microbatches) const;
  void requantize();
  void note_loss(double loss);
  void check_flags(const char* when);
  Var forward(const Tensor& x, const Target& target, const Outcome& outcome);
  Var run_model(const Tensor& x);
  void end_sequences() { state_.sequence.starts = Tensor(); }
  void plan_and_check(const PlanSpec& plan);
  Tensor as_planned(const Tensor& x) const;
  void settle();

  const Device device_ = current_device();
  StepState state_;
  std::shared_ptr<Module> model_;
  LossFunction loss_;
  std::unique_ptr<Optimizer> optimizer_;
  RequantPolicy policy_;
  std::function<float(int64_t)> learning_rate_;
  std::vector<Parameter*> parameters_;
  int64_t window_microbatches_ = 0, window_samples_ = 0;
  int64_t window_counted_ = 0;  // elements of targets
  int64_t since_requantize_ = 0;
  std::string bad_input_;  // the first input of the window that is known to hold NaN or Inf
  int64_t total_steps_ = 0;
  int64_t document_end_ = -1;
  std::optional<double> bad_loss_;  // not finite, since the flags were last checked
  Tensor labels_;                   // given on the host: those of the microbatch
  std::function<void()> meanwhile_;
  std::unique_ptr<detail::WindowSums> sums_;  // of a tree; nullptr: gradients are added as they come
  std::shared_ptr<Communicator> ranks_;       // nullptr: one
  int64_t window_start_ = 0;                  // microbatches of all ranks before the window
  Measures measures_;
  OutputHook output_hook_;
  std::map<std::string, Attributes> metric_keys_;
  std::unique_ptr<Graphs> graphs_;
  std::optional<PlanSpec> plan_;
  std::unique_ptr<Phases> phases_;
  bool converted_ = false;
};

}  // namespace bitgrad
