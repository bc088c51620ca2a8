// Loss functions of a model's outputs and targets (docs/numerics.md sections 6 and 10).
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/base/key.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// What a microbatch or an evaluation of one batch gives: sums, of which metrics are computed.

// The sum that a metric computes for one batch from outputs [n, .., o] and target, both on the CPU; and the measures of
// a task, by metric name.
using Measure = std::function<double(const Tensor& outputs, const Tensor& target)>;
using Measures = std::map<std::string, Measure>;
// Observes the outputs and target of a batch.
using OutputHook = std::function<void(const Tensor& outputs, const Tensor& target)>;

struct StepResult {
  double loss = 0;      // summed over the target elements that count, each times its weight
  int64_t correct = 0;  // number of predictions whose largest logit is at the target class
  int64_t samples = 0;
  int64_t counted = 0;   // target elements that count
  double weight = 0;     // their total weight (LossFunction::weight); 0: each weighs 1
  bool stepped = false;  // the optimizer ran: a step boundary, where a checkpoint may be saved
  bool skipped = false;  // this ended a window in which nothing counts: no update; a checkpoint may be saved here too
  // Set by evaluation only.
  int64_t among_top5 = 0;    // targets among the five largest logits, if there are more than five classes
  double squared_error = 0;  // sum, for value targets
  // Sum of the cross-entropy without weights and smoothing; nullopt: it is the loss.
  std::optional<double> cross_entropy = {};
  std::map<std::string, double> measured = {};  // custom sums of metrics (Measures)
};

// A loss takes outputs [n, .., o] and a target: classes, int32 [n, ..], or values, fp32 in the shape of the outputs;
// both on the current device.
struct LossKind;

class LossFunction {
 public:
  using Of = Var (*)(const Var& outputs, const Tensor& target);

  // Wraps a function that returns the sum over the target's elements. For functions in losses.inc, whether they return
  // a sum or a mean is known.
  LossFunction(Of of);
  // Wraps any other callable, which must also return a sum. Learners do not record it, since it may synchronize with
  // the device.
  template <typename F>
  requires(!std::same_as<F, Of> && !std::same_as<F, LossFunction> &&
           std::is_invocable_r_v<Var, F, const Var&, const Tensor&>) LossFunction(F f)
      : of_(std::move(f)), recordable_(false) {}

  // Creates the loss of a kind. Omitted keys take their defaults.
  LossFunction(const LossKind& kind, const Attributes& keys);

  // A value target with the outputs' element count but another shape is viewed in the shape of the outputs.
  Var operator()(const Var& outputs, const Tensor& target) const;
  explicit operator bool() const { return of_ != nullptr; }
  // Name of the kind; empty if there is none.
  const std::string& name() const { return name_; }
  // Whether the loss of this target is the mean over the elements that count, rather than their sum.
  bool is_mean(const Tensor& target) const { return target.shape().rank() >= mean_from_rank_; }
  // The total weight of a target, by which sums of the loss are divided: `counted`, its elements that count, unless the
  // kind weighs them. Copies a target of a weighted loss to the host.
  double weight(const Tensor& target, int64_t counted) const;
  bool weighted() const { return weigh_ != nullptr; }
  // No key changes what the kind computes.
  bool plain() const { return plain_; }
  // Whether targets of this dtype (int32 classes, fp32 values) can be used.
  bool takes(DType target) const { return either_ || name_.empty() || (target == dtypes::int32) == classes_; }
  // Throws Error if keys of the loss do not fit `outputs`, the size of the last axis of a model's outputs.
  void check_outputs(int64_t outputs) const {
    if (check_) check_(outputs);
  }
  bool recordable() const { return recordable_; }

 private:
  std::function<Var(const Var&, const Tensor&)> of_;
  std::function<double(const Tensor&)> weigh_;
  std::function<void(int64_t)> check_;
  std::string name_;
  bool classes_ = true, either_ = false, plain_ = true;
  int64_t mean_from_rank_ = std::numeric_limits<int64_t>::max();
  bool recordable_ = true;
};

// A loss by name, as in configurations: listed in losses.inc, or registered by a program or plugin.
struct LossKind {
  std::string name = {};
  std::string doc = {};
  std::vector<Key> keys = {};
  bool classes = true;  // targets are classes; false: values
  // For targets of at least this rank the loss is the mean over the elements that count, otherwise their sum.
  int64_t mean_from_rank = std::numeric_limits<int64_t>::max();
  bool recordable = false;  // never synchronizes with the device, so its work may be recorded
  // Creates the loss; `keys` has a value for every key that has a default.
  std::function<std::function<Var(const Var& outputs, const Tensor& target)>(const Attributes& keys)> make = {};
  bool either = false;  // targets may be classes or values
  // Creates the function that returns the total weight of a target on the CPU: the mean loss is the sum divided by the
  // weight of all targets, those of a window or of an evaluation. {}, or one that returns {}: the elements that count.
  std::function<std::function<double(const Tensor& target)>(const Attributes& keys)> weigh = {};
  // Throws Error if the keys do not fit a model whose outputs have `outputs` values on their last axis.
  std::function<void(const Attributes& keys, int64_t outputs)> check = {};
};
// Throws Error if the name is taken or invalid, a key is malformed, or `make` is missing.
void register_loss(LossKind kind);
// Returns nullptr for an unknown name. The pointer stays valid for the lifetime of the program.
const LossKind* find_loss_kind(std::string_view name);
// In list order, followed by registered kinds in order of registration.
std::vector<const LossKind*> loss_kinds();

std::vector<std::string> loss_names();
// Throws Error for an unknown name, and for keys that the kind does not have.
LossFunction find_loss(const std::string& name, const Attributes& keys = {});
// Whether the targets may be classes, and whether they may be values. Throws Error for an unknown name.
bool loss_takes_classes(const std::string& name);
bool loss_takes_values(const std::string& name);

}  // namespace bitgrad
