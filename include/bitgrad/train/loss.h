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

namespace bitgrad {

// outputs [n, .., o] and a target: classes, int32 [n, ..], or values, fp32 of the shape of outputs; both on the current
// device.
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

  // values of another shape than outputs, but as many, are viewed in that of outputs.
  Var operator()(const Var& outputs, const Tensor& target) const;
  explicit operator bool() const { return of_ != nullptr; }
  // Of losses.inc; else empty.
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

std::vector<std::string> loss_names();
// Throws Error for an unknown name.
LossFunction find_loss(const std::string& name);
// Whether the targets of a loss are classes (else values). `name`: of losses.inc.
bool loss_takes_classes(const std::string& name);

}  // namespace bitgrad
