// Adam: Kingma and Ba 2015, arXiv 1412.6980, algorithm 1. Weight decay is added to the gradient.
#include "optim/adam_family.h"

namespace bitgrad {

std::unique_ptr<UpdateRule> make_adam(const OptimizerSpec& spec) {
  return std::make_unique<detail::AdamFamily>(spec, /*decoupled=*/false);
}

}  // namespace bitgrad
