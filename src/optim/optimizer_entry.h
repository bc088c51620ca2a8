// The optimizer's state for one parameter, or for one learned part of a parameter.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/optim/optimizer.h"
#include "optim/moments.h"
#include "optim/row_step.h"
#include "optim/shards.h"

namespace bitgrad {

struct Optimizer::Entry {
  // `before`: the entry whose moments are continued; nullptr: moments start at zero.
  Entry(Parameter* p, const UpdateRule* update, MomentKind moment_kind, const OptimizerSpec& spec, float lr_factor,
        Entry* before)
      : parameter(p),
        rule(update),
        path(p->path()),
        shape(p->shape()),
        kind(moment_kind),
        moments(before ? std::move(before->moments) : detail::Moments(update->moments(shape), kind, shape)),
        updates(before ? before->updates : 0),
        row_step(*p, *update, moments, kind, spec, lr_factor) {}
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  ~Entry() {
    if (fused) parameter->grad_sink().set_rows(nullptr);
  }

  // Whether these moments are valid for p too.
  bool feeds(const Parameter& p, const UpdateRule& update, MomentKind moment_kind) const {
    return !path.empty() && path == p.path() && shape == p.shape() && kind == moment_kind &&
           rule->family() == update.family();
  }

  Parameter* parameter;  // dangling in an old entry once the model has changed form
  const UpdateRule* rule;
  std::string path;
  Shape shape;
  MomentKind kind;
  detail::Moments moments;
  int64_t updates;  // of the parameter, by this rule or another one of its family
  int place = 0;    // in StepScalars::age
  detail::RowStep row_step;
  std::optional<detail::RowShares> shares;  // set if ranks update some of the rows each
  Entry* owner = nullptr;  // set for a learned part: the parameter whose straight-through rule produces its gradient
  std::vector<Tensor> learned;      // gradients of the parameter's learned parts
  Tensor divisors;                  // divisors of their sums, one per block of the scheme
  Tensor gradient;                  // for a learned part: one of the owner's `learned`
  bool active = false;              // has a gradient in this step
  bool finished = false;            // the gradient (fp32) was finished in place in this step
  std::unique_ptr<GradRows> fused;  // set while armed
  bool moved = false;               // this step's update ran in backward
  std::string declined;             // while armed: why the op produced its gradient as a whole, if it gave a reason
};

}  // namespace bitgrad
