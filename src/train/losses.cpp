// The losses by name: one line of losses.inc each.
#include <algorithm>
#include <iterator>

#include "bitgrad/base/text.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/train/loss.h"

namespace bitgrad {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// One class a sample: the sum, whose bits are older than the mean over positions, some of which may not count.
Var class_loss(const Var& logits, const Tensor& target) {
  if (target.shape().rank() < 2) return softmax_cross_entropy_sum(logits, target);
  return cross_entropy(logits, target, kIgnoreIndex);
}

struct NamedLoss {
  const char* name;
  LossFunction::Of of;
  bool classes;
  int64_t mean_from_rank;
};
constexpr NamedLoss kLosses[] = {
#define BITGRAD_LOSS(name, op, classes, mean_from_rank) {#name, op, classes, mean_from_rank},
#include "train/losses.inc"
#undef BITGRAD_LOSS
};

const NamedLoss& named(const std::string& name) {
  for (const NamedLoss& l : kLosses)
    if (l.name == name) return l;
  fail("loss", unknown_name("loss", name, loss_names()));
}

}  // namespace

LossFunction::LossFunction(Of of) : of_(of) {
  for (const NamedLoss& l : kLosses)
    if (l.of == of) name_ = l.name, mean_from_rank_ = l.mean_from_rank;
}

Var LossFunction::operator()(const Var& outputs, const Tensor& target) const {
  const bool view = target.dtype() == dtypes::fp32 && target.shape() != outputs.shape() &&
                    target.numel() == outputs.value().numel() && target.contiguous();
  return of_(outputs, view ? target.reshape(outputs.shape()) : target);
}

std::vector<std::string> loss_names() {
  std::vector<std::string> names;
  for (const NamedLoss& l : kLosses) names.push_back(l.name);
  return names;
}

LossFunction find_loss(const std::string& name) { return named(name).of; }
bool loss_takes_classes(const std::string& name) { return named(name).classes; }

}  // namespace bitgrad
