// The losses by name: one line of losses.inc each.
#include "bitgrad/base/text.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/train/loss.h"

namespace bitgrad {
namespace {

struct NamedLoss {
  const char* name;
  LossFunction::OfHost of_host;
  LossFunction::OfTensor of_tensor;
};
constexpr NamedLoss kLosses[] = {
#define BITGRAD_LOSS(op) {#op, op, op##_of},
#include "train/losses.inc"
#undef BITGRAD_LOSS
};

}  // namespace

LossFunction::LossFunction(OfHost of_host) : of_host_(of_host) {
  for (const NamedLoss& l : kLosses)
    if (l.of_host == of_host) of_tensor_ = l.of_tensor;
}

std::vector<std::string> loss_names() {
  std::vector<std::string> names;
  for (const NamedLoss& l : kLosses) names.push_back(l.name);
  return names;
}

LossFunction find_loss(const std::string& name) {
  for (const NamedLoss& l : kLosses)
    if (l.name == name) return {l.of_host, l.of_tensor};
  fail("loss", unknown_name("loss", name, loss_names()));
}

}  // namespace bitgrad
