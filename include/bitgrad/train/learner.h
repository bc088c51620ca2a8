// Learner: trains and evaluates a model in microbatches. It owns the model, the optimizer and the counters, i.e. all
// state that a training step changes and a checkpoint stores.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/data/dataset.h"
#include "bitgrad/dist/communicator.h"
#include "bitgrad/dist/wire_format.h"
#include "bitgrad/nn/prepare.h"
#include "bitgrad/optim/optimizer.h"
#include "bitgrad/optim/requant.h"
#include "bitgrad/optim/window_sum.h"
#include "bitgrad/task/loss.h"
#include "bitgrad/task/metric.h"

namespace bitgrad {

namespace detail {
struct TrainState;
}
// Quantization of the model from optimizer step `from` on (before the first microbatch of its window).
struct QuantPhase {
  int64_t from = 0;
  std::optional<PrepareSpec> spec = {};  // nullopt: unchanged
  QuantMode mode = {};
};

// A phase could not be entered.
class PhaseError : public Error {
 public:
  PhaseError(const std::string& message, ErrorCode code, int64_t phase) : Error(message, code), phase_(phase) {}
  int64_t phase() const noexcept { return phase_; }  // index of the phase

 private:
  int64_t phase_;
};

// What a learner is made for.
enum class LearnerUse : uint8_t {
  kTrain,
  // To predict with the values of a file: parameters are unset until load_checkpoint, load_values, load_model or
  // init_from sets them (Parameter::leave_unset). Nothing is drawn, there are no masters, gradients and optimizer
  // state, and training and saving a checkpoint throw Error.
  kPredict,
};

// What to plan a model for.
struct PlanSpec {
  Form input = {};      // sample shape, dtype (fp32, or int32 for ids), `values`; other fields are ignored
  int64_t outputs = 0;  // size of the output's last axis; 0: any
  // Form of the targets. For classes, outputs have the target's axes followed by that of the classes; for values, as
  // many elements. nullopt: unknown.
  std::optional<TargetForm> target = {};
  int64_t train_samples = 0, eval_samples = 0;  // batch sizes; 0: no layouts are planned
  int64_t least_samples = 0;  // of a training batch; layers refuse one that is too small for them. 0: unknown
  // Requires that something trains. false: for evaluation only, but with the layouts of a training model, so that the
  // same kernels are chosen.
  bool trains = true;
};

class Learner {
 public:
  // Initializes `model` under the path "layers" with `seed`. `learning_rate(step)` returns the rate of an optimizer
  // step. bf16 gradients are summed with stochastic rounding if policy.accumulate > 8. A parameter without a master
  // changes its codes at every optimizer step and requires policy.every == policy.accumulate; otherwise throws Error.
  // The learner trains and evaluates on the device that is current here, which must be the model's, regardless of the
  // device current later.
  Learner(std::shared_ptr<Module> model, LossFunction loss, const OptimizerSpec& optimizer, const RequantPolicy& policy,
          std::function<float(int64_t)> learning_rate, uint64_t seed, LearnerUse use = LearnerUse::kTrain);

  // Not copyable: modules point to the learner's step state.
  ~Learner();
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;

  // Sets the quantization phases, with `from` strictly ascending from 0 on; call before the first microbatch. The first
  // phase is entered now, each other one when its step is reached: masters are requantized as at the end of a run,
  // layers change, layouts are planned and the optimizer is attached again; moments of remaining parameters are kept,
  // and N counts from there.
  // All phases are tried now and again by plan, once feature counts are known, so that none fails in the middle of a
  // run; the model's values are preserved. Throws PhaseError with the message of prepare, set_quant_mode, the layers'
  // plan or the optimizer; the learner is unusable then.
  void set_phases(std::vector<QuantPhase> phases);
  const std::vector<QuantPhase>& phases() const;
  // Index of the current phase; 0 without phases.
  int64_t phase() const;
  // For resuming: puts the model in the form of that phase, with values to be replaced by load_checkpoint.
  void enter_phase(int64_t index);
  // bitgrad::calibrate on the model (nn/prepare.h). Samples may have any shape that evaluate accepts.
  void calibrate(std::span<const Tensor> batches);
  // Irreversibly reduces the model to its codes (nn/prepare.h); it can only be evaluated afterwards. Ends the phases.
  void convert();
  bool converted() const;

  // Plans the layouts for training and evaluation. Throws Error if the model does not accept the input, its outputs do
  // not match, or nothing trains although spec.trains.
  void plan(const PlanSpec& spec);
  // Repeats plan after dropping the old layouts. Needed after calling prepare, set_quant_mode or a slot's set directly.
  // Recorded work is recorded anew. Does not plan if plan was never called.
  void plan_again();

  // Runs forward and backward on one microbatch. After the last one of a window the optimizer steps, and the masters
  // are requantized if due.
  // x [n, sample...] has the planned dtype and lies on the learner's device; samples of another shape with the same
  // element count are viewed in the planned shape. target, on the same device: classes int32 [n, ..], or values fp32
  // [n, ..], as the loss expects. counted: number of target elements that count; -1: determined here (counting classes
  // of positions synchronizes with the device). weight: their total weight; -1: determined here (for a weighted loss
  // that synchronizes too). The optimizer divides by the total weight of the window, however it is distributed over
  // microbatches. A microbatch in which nothing counts is not run: it adds nothing to its window. If nothing counts in
  // a whole window, it is skipped: no update, decay, step or requantization, and draws and N go on as if it had not
  // been there.
  // Throws Error(kNonFinite) that names the tensor if a value, a gradient, the loss of a microbatch of the window or an
  // updated value is not finite; if x itself is not, the message names the position in x. Nothing has been updated
  // then, unless usable() is false. After any Error that leaves the learner usable, the current window is dropped and
  // the next microbatch begins a new one.
  // In windows of one microbatch, updates run inside backward if they can be fused (fused_updates). On devices other
  // than the CPU, numeric errors surface when flags are read (kernels/flag.h), at the end of the microbatch at the
  // latest; those of updated values at the end of the next one.
  StepResult microbatch(const Tensor& x, const Tensor& target, int64_t counted = -1, double weight = -1);
  // For one class per sample; the labels are copied to the learner's device.
  StepResult microbatch(const Tensor& x, std::span<const int32_t> labels);
  // False after an Error interrupted the updates of a step or the entry of a phase, so that masters and codes are
  // between two steps. An unusable learner throws Error on training, evaluation and saving.
  bool usable() const;
  // For the last step: the parameters whose updates ran inside backward, and why the others' did not.
  std::vector<Optimizer::FusedUpdate> fused_updates() const;
  // Ends a run: steps with the partial window, if any, and requantizes. Errors as in microbatch.
  void flush();
  // Returns the outputs, computed without a tape in evaluation mode. Throws Error(kNonFinite) that names x if it is not
  // finite (on devices other than the CPU only where a quantizer or the loss detects it), or the layer whose quantizer
  // receives NaN or Inf; Error that names a parameter that is unset.
  Tensor predict(const Tensor& x);
  // Loss and sums for metrics of one batch in evaluation mode. `target` as in microbatch. Throws Error(kNonFinite) if
  // the loss is not finite; other errors as in predict.
  StepResult evaluate(const Tensor& x, const Tensor& target, int64_t counted = -1, double weight = -1);
  StepResult evaluate(const Tensor& x, std::span<const int32_t> labels);

  // For ids: attention keeps documents apart, each of which ends with this id (Dataset::document_end). -1: one
  // document. Applies to training and evaluation until set again.
  void set_document_end(int64_t id);
  int64_t document_end() const;

  // The planned input; nullptr before plan.
  const Form* input() const;

  Device device() const;
  // Only between windows. kTree needs floor(log2(A - 1)) + 1 buffers of the size of all gradients, and disables
  // recording.
  void set_window_sum(WindowSum sum);
  // Default: kAuto. kWindow is for observers of ranges (min_max, moving_average). Throws Error inside a window.
  void set_observer_update(ObserverUpdate update);
  // Makes this learner one of several ranks, with the same model, seed and policy, that share the A microbatches of
  // each window: rank r runs A / size of them, from r * A / size on. Call before the first microbatch; A must be a
  // multiple of the size. Sums use a tree (kTree), so any number of ranks gives the bits of a single one as long as A /
  // size is a power of two. Running statistics of norms follow the batches of all ranks at the end of the window, and
  // so do observers, whose update must not be kMicrobatch. An Error on one rank ends all: the others throw it too, with
  // its code. Nothing is fused or recorded.
  // On the CPU each rank updates its rows of a large parameter (Optimizer::set_ranks), to which gradients travel as
  // `wire`; with other formats than kExact the bits are those of this number of ranks. Parameters that every rank
  // updates travel exactly.
  void set_communicator(std::shared_ptr<Communicator> ranks, WireFormat wire = WireFormat::kExact);
  // On several ranks: brings masters, moments and averages of all rows to all ranks, or to the first alone; each has
  // those that it updates. Call it on all ranks, between windows, before they are read, saved or hashed. Does nothing
  // on one rank.
  void gather_state(Optimizer::Place place = Optimizer::Place::kAllRanks);
  // Whether the work of a microbatch is recorded the second time its form occurs and then replayed with a single launch
  // (base/device.h; CUDA graphs), on devices that can record. The results are the same as without. From the second
  // step on, errors about non-finite updated values also name the step that was recorded.
  void set_recorded(bool on);
  // Number of graphs launched, and why nothing is recorded (empty: it is, or it is off).
  int64_t recorded_launches() const;
  std::string not_recorded() const;
  Module& model();
  const LossFunction& loss() const;
  Optimizer& optimizer();
  StepState& state();
  // Rate of an optimizer step, counted from 0; state().step is the next one.
  float learning_rate(int64_t step) const;
  // Replaces the rates, and sets the factors of every weight decay and momentum (1 by default), of the steps from the
  // next one on.
  void set_learning_rates(std::function<float(int64_t)> rates);
  void set_rule_factors(std::function<RuleFactors(int64_t)> factors);
  // Sets the optimizer steps of the whole run, for what is annealed along it (rule tanh): before each microbatch
  // state().progress becomes step / steps, at most 1. 0: unknown; progress stays 0.
  void set_total_steps(int64_t steps);
  // Sets the microbatches of the whole run, skipped ones included. Only ranks need to know, whose last window may be
  // incomplete: each runs what is left of its share, and a rank without any calls flush. 0: all windows are complete.
  void set_total_microbatches(int64_t microbatches);
  // The microbatches of all ranks in the window that ended last, in order.
  const std::vector<StepResult>& last_results() const;
  // By rank: the seconds from the sums of the window before to those of the last one in which it did not wait for other
  // ranks. Empty on one rank, and before the second window.
  const std::vector<double>& rank_seconds() const;
  // Samples in the current window; 0 on a step boundary.
  int64_t window_samples() const;
  // Microbatches since the last requantization; part of a checkpoint.
  int64_t since_requantize() const;
  // Windows in which nothing counted, and their microbatches, which state().microbatch leaves out; part of a
  // checkpoint.
  struct Skipped {
    int64_t windows = 0, microbatches = 0;
  };
  const Skipped& skipped() const;
  // Drops the current window: its gradients, the non-finite flags of its forward passes, and its microbatches in
  // since_requantize().
  void drop_window();

  // For the library's own code (train/train_state.h).
  detail::TrainState& train_state() const { return *s_; }

 private:
  Tensor on_device(std::span<const int32_t> labels);

  std::unique_ptr<detail::TrainState> s_;
  Tensor labels_;  // of the last microbatch with labels on the host
};

// Evaluation of a learner on a data set. docs/numerics.md section 10.

// Evaluates on the learner's device: mean loss over the elements that count, accuracy in percent (-1: targets are
// values), and every metric that fits the task. Throws Error(kNonFinite) if a loss is not finite.
struct Evaluation {
  double loss = 0, accuracy = -1;
  int64_t samples = 0;
  MetricValues metrics = {};
};
// // `ranks`: each of them evaluates every size-th batch, and all have the result, with the bits of a single rank if
// their kernels are the same or bits are strict; all call it, with learners of the same values, and an Error ends all.
// nullptr: this process alone.
Evaluation evaluate(Learner& learner, const Dataset& data, int64_t batch, Communicator* ranks = nullptr);

}  // namespace bitgrad
