#include "train/window_sums.h"

#include <utility>

#include "dist/add.h"

namespace bitgrad::detail {
namespace {

// gradient = sum + gradient, or sum if the parameter has no gradient.
void join(const Tensor& sum, Parameter& p) {
  if (p.has_grad())
    add_left(sum, p.grad());
  else
    p.grad().copy_from(sum);
  p.mark_grad();
}

}  // namespace

void WindowSums::add(const std::vector<Parameter*>& parameters) {
  for (Parameter* p : parameters) {
    std::vector<Level>& levels = levels_[p];
    size_t at = 0;
    for (; (microbatches_ >> at) & 1; ++at)
      if (std::exchange(levels[at].full, false)) join(levels[at].sum, *p);
    if (at >= levels.size()) levels.resize(at + 1);
    if (!p->has_grad()) continue;
    Level& level = levels[at];
    if (!level.sum.defined()) level.sum = Tensor::empty(p->grad().shape(), p->grad().dtype(), MemoryKind::kGrad);
    level.sum.copy_from(p->grad());
    level.full = true;
    p->zero_grad();
  }
  ++microbatches_;
}

void WindowSums::finish(const std::vector<Parameter*>& parameters, Communicator* ranks, int64_t& divisor) {
  for (Parameter* p : parameters)
    for (Level& level : levels_[p])
      if (std::exchange(level.full, false)) join(level.sum, *p);
  microbatches_ = 0;
  if (ranks == nullptr || ranks->size() == 1) return;
  std::vector<int64_t> counts{divisor};
  for (const Parameter* p : parameters) counts.push_back(p->has_grad() ? 1 : 0);
  const std::vector<int64_t> own = counts;
  ranks->sum(counts);
  divisor = counts[0];
  for (size_t i = 0; i < parameters.size(); ++i) {
    Parameter& p = *parameters[i];
    if (counts[i + 1] == 0) continue;
    if (own[i + 1] == 0) p.make_zero_grad();
    ranks->sum(p.grad());
  }
}

void WindowSums::drop() {
  levels_.clear();
  microbatches_ = 0;
}

}  // namespace bitgrad::detail
