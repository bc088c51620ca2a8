// The loss of a learner: over a model's outputs and a target (docs/numerics.md sections 6 and 10).
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/autograd/var.h"
#include "bitgrad/base/key.h"

namespace bitgrad {

// outputs [n, .., o] and a target: classes, int32 [n, ..], or values, fp32 of the shape of outputs; both on the current
// device.
struct LossKind;

class LossFunction {
 public:
  using Of = Var (*)(const Var& outputs, const Tensor& target);

  // The sum over the elements of the target, unless it is one of losses.inc: those know what they give.
  LossFunction(Of of);
  // Any other callable of this form: a sum too. Learners do not record it, for it may wait for the device.
  template <typename F>
  requires(!std::same_as<F, Of> && !std::same_as<F, LossFunction> &&
           std::is_invocable_r_v<Var, F, const Var&, const Tensor&>) LossFunction(F f)
      : of_(std::move(f)), recordable_(false) {}

  // Of a kind, with values for its keys; those that are left out have their defaults.
  LossFunction(const LossKind& kind, const Attributes& keys);

  // values of another shape than outputs, but as many, are viewed in that of outputs.
  Var operator()(const Var& outputs, const Tensor& target) const;
  explicit operator bool() const { return of_ != nullptr; }
  // Of a kind; else empty.
  const std::string& name() const { return name_; }
  // Whether what it gives of this target is the mean over the elements that count, not their sum.
  bool is_mean(const Tensor& target) const { return target.shape().rank() >= mean_from_rank_; }
  bool recordable() const { return recordable_; }

 private:
  std::function<Var(const Var&, const Tensor&)> of_;
  std::string name_;
  int64_t mean_from_rank_ = std::numeric_limits<int64_t>::max();
  bool recordable_ = true;
};

// A loss as a configuration names it: a line of losses.inc, or registered by a program or plugin.
struct LossKind {
  std::string name = {};
  std::string doc = {};
  std::vector<Key> keys = {};
  bool classes = true;  // targets are classes, else values
  // What it gives of a target of at least this rank is the mean over the elements that count, else their sum.
  int64_t mean_from_rank = std::numeric_limits<int64_t>::max();
  bool recordable = false;  // it never waits for the device, so that its work may be recorded
  // Makes the loss; `keys` has a value for every key that has a default.
  std::function<std::function<Var(const Var& outputs, const Tensor& target)>(const Attributes& keys)> make = {};
};
// Throws Error for a known or bad name, keys that do not read, and without `make`.
void register_loss(LossKind kind);
// nullptr: unknown. The pointer stays valid until the program ends.
const LossKind* find_loss_kind(std::string_view name);
// In the order of the list, then of registration.
std::vector<const LossKind*> loss_kinds();

std::vector<std::string> loss_names();
// Throws Error for an unknown name, and for keys that the kind does not take.
LossFunction find_loss(const std::string& name, const Attributes& keys = {});
// Whether the targets of a loss are classes (else values). Throws Error for an unknown name.
bool loss_takes_classes(const std::string& name);

}  // namespace bitgrad
