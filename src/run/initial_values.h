// The initial values that a configuration asks for.
#pragma once

#include <string>

#include "bitgrad/config/config.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/train/learner.h"

namespace bitgrad::detail {

// Takes the values of model.init_from, which is set, and of adapters.init_from into a new learner, and the origin
// (interop/model_origin.h) that the file hands on, unless `data` have another tokenizer. Warns of what the file has and
// the model does not use, and of what model.ignore leaves out; returns a line for the log. `data`:
// what the run trains on, or nullptr. Throws Error if the file's run normalized or tokenized its inputs otherwise,
// unless model.other_inputs accepts that; else as init_from and init_from_weights.
std::string take_initial_values(const RunConfig& config, const Dataset* data, Learner& learner);

}  // namespace bitgrad::detail
