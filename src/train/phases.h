// Pieces of the learner's phases.
#pragma once

#include <string>

#include "bitgrad/train/checkpoint.h"

namespace bitgrad::detail {

// A parameter without a master changes its codes at every optimizer step. Throws Error for another policy.
void check_codes_that_train(const Parameter& p, const RequantPolicy& policy);

// Puts a learner into the phase of a checkpoint that it will load. Throws Error(kData) where it has no such phase.
void enter_phase_of(const CheckpointHeader& header, const std::string& file, Learner& learner);

// The table of print_quantization, as log lines.
void log_quantization(Module& model);

// A table, as log lines: layer, the rule of `spec` that won, the recipe that holds it now.
void log_choices(Module& model, const PrepareSpec& spec);
// The last spec that a phase up to that of now brought; nullptr: none.
const PrepareSpec* spec_of_now(const Learner& learner);

}  // namespace bitgrad::detail
