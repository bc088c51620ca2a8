// What the optimizer holds of one parameter, or of a learned part of one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bitgrad/optim/optimizer.h"
#include "optim/moments.h"
#include "optim/row_step.h"

namespace bitgrad {

struct Optimizer::Slot {
  // `before`: the slot whose moments go on here; nullptr: they begin at zero.
  Slot(Parameter* p, UpdateRule* update, MomentKind moment_kind, const OptimizerSpec& spec, Slot* before)
      : parameter(p),
        rule(update),
        path(p->path()),
        shape(p->shape()),
        kind(moment_kind),
        moments(before ? std::move(before->moments) : detail::Moments(*update, kind, shape)),
        row_step(*p, *update, moments, kind, spec) {}
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  ~Slot() {
    if (fused) parameter->set_gradient_rows(nullptr);
  }

  // Whether these moments are those of p too.
  bool feeds(const Parameter& p, const UpdateRule& update, MomentKind moment_kind) const {
    return !path.empty() && path == p.path() && shape == p.shape() && kind == moment_kind &&
           rule->family() == update.family();
  }

  Parameter* parameter;  // gone in an old slot, once the model has another form
  UpdateRule* rule;
  std::string path;
  Shape shape;
  MomentKind kind;
  detail::Moments moments;
  detail::RowStep row_step;
  Slot* owner = nullptr;            // of a learned part: whose straight-through rule gives its gradient
  std::vector<Tensor> learned;      // gradients of the parameter's own learned parts
  Tensor divisors;                  // of their sums, one for each block of the scheme
  Tensor gradient;                  // of a learned part: one of the owner's `learned`
  bool active = false;              // has a gradient in this step
  bool finished = false;            // the gradient (fp32) was finished in place in this step
  std::unique_ptr<GradRows> fused;  // armed
  bool moved = false;               // the update of this step ran in backward
  std::string declined;             // armed: why its gradient came as a whole, where the op told
};

}  // namespace bitgrad
