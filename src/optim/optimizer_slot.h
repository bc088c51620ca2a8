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
  Slot(Parameter* p, UpdateRule* update, MomentKind kind, const OptimizerSpec& spec)
      : parameter(p), rule(update), moments(*update, kind, p->shape()), sweep(*p, *update, moments, kind, spec) {}
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  ~Slot() {
    if (fused) parameter->set_gradient_rows(nullptr);
  }

  Parameter* parameter;
  UpdateRule* rule;
  detail::Moments moments;
  detail::RowStep sweep;
  Slot* owner = nullptr;            // of a learned part: whose straight-through rule gives its gradient
  std::vector<Tensor> learned;      // gradients of the parameter's own learned parts
  Tensor gradient;                  // of a learned part: one of the owner's `learned`
  bool active = false;              // has a gradient in this step
  bool finished = false;            // the gradient (fp32) was finished in place in this step
  std::unique_ptr<GradRows> fused;  // armed
  bool moved = false;               // the update of this step ran in backward
  std::string declined;             // armed: why its gradient came as a whole, where the op told
};

}  // namespace bitgrad
