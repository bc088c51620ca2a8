// AdamW: Loshchilov and Hutter 2019, arXiv 1711.05101, algorithm 2. Weight decay is decoupled.
#include "optim/adam_family.h"

namespace bitgrad {

std::unique_ptr<UpdateRule> make_adamw(const OptimizerSpec& spec) {
  return std::make_unique<detail::AdamFamily>(spec, /*decoupled=*/true);
}

}  // namespace bitgrad
