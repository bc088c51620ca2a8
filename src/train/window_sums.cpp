#include "train/window_sums.h"

#include <utility>

#include "dist/add.h"

namespace bitgrad::detail {
namespace {

// gradient = sum + gradient, or sum if the parameter has no gradient.
void join(const Tensor& sum, Parameter& p) {
  if (p.grad_sink().filled())
    add_left(sum, p.grad());
  else
    p.grad().copy_from(sum);
  p.grad_sink().done();
}

}  // namespace

void WindowSums::add(const std::vector<Parameter*>& parameters) {
  for (Parameter* p : parameters) {
    std::vector<Level>& levels = levels_[p];
    size_t at = 0;
    for (; (microbatches_ >> at) & 1; ++at)
      if (std::exchange(levels[at].full, false)) join(levels[at].sum, *p);
    if (at >= levels.size()) levels.resize(at + 1);
    if (!p->grad_sink().filled()) continue;
    Level& level = levels[at];
    if (!level.sum.defined()) level.sum = Tensor::empty(p->grad().shape(), p->grad().dtype(), MemoryKind::kGrad);
    level.sum.copy_from(p->grad());
    level.full = true;
    p->grad_sink().clear();
  }
  ++microbatches_;
}

void WindowSums::finish(Parameter& p) {
  for (Level& level : levels_[&p])
    if (std::exchange(level.full, false)) join(level.sum, p);
}

void WindowSums::finish(const std::vector<Parameter*>& parameters) {
  for (Parameter* p : parameters) finish(*p);
  microbatches_ = 0;
}

void WindowSums::drop() {
  levels_.clear();
  microbatches_ = 0;
}

}  // namespace bitgrad::detail
