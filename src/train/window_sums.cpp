#include "train/window_sums.h"

#include <algorithm>
#include <numeric>
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

// The gradient of a parameter that no microbatch of this rank has reached: -0, which changes no sum, not even one of
// -0.
void make_zero(Parameter& p) {
  const GradTarget target = p.grad_sink().target(p.shape(), p.spec().grad);
  target.out.copy_from(Tensor::full(p.shape(), p.spec().grad, -0.0, MemoryKind::kWorkspace));
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

double WindowSums::finish(const std::vector<Parameter*>& parameters, Communicator* ranks,
                          const std::vector<double>& weights) {
  for (Parameter* p : parameters)
    for (Level& level : levels_[p])
      if (std::exchange(level.full, false)) join(level.sum, *p);
  microbatches_ = 0;
  if (ranks == nullptr || ranks->size() == 1) return std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> own;  // which gradients this rank has, then its weights
  own.reserve(parameters.size() + weights.size());
  for (Parameter* p : parameters) own.push_back(p->grad_sink().filled() ? 1 : 0);
  own.insert(own.end(), weights.begin(), weights.end());
  const std::vector<std::vector<double>> all = gather_lists(*ranks, std::span<const double>(own));
  std::vector<Tensor> gradients;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (std::none_of(all.begin(), all.end(), [i](const auto& of) { return of[i] != 0; })) continue;
    if (!parameters[i]->grad_sink().filled()) make_zero(*parameters[i]);
    gradients.push_back(parameters[i]->grad());
  }
  sum_over_ranks(*ranks, gradients);
  double sum = 0;  // in the order of the microbatches
  for (const std::vector<double>& of : all) sum = std::accumulate(of.begin() + std::ssize(parameters), of.end(), sum);
  return sum;
}

void WindowSums::drop() {
  levels_.clear();
  microbatches_ = 0;
}

}  // namespace bitgrad::detail
