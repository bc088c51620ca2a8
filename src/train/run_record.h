// run.json: on what a run ran, once for each start, and the table of its layers. What a report says beside the metrics.
#pragma once

#include <string>

#include "bitgrad/train/config.h"
#include "bitgrad/train/learner.h"

namespace bitgrad::detail {

// Adds this start, or resume, at the learner's step. A file that cannot be read or written is a warning.
void record_session(const std::string& folder, const RunConfig& config, Learner& learner);
// The table of layers as they are now. Errors as above.
void record_model(const std::string& folder, Learner& learner);

// {"commit", "branch", "changed" (files with changes, of those that git tracks)} of the repository that the current
// folder is in, as JSON; "null": it is in none, or there is no git.
std::string git_state();

}  // namespace bitgrad::detail
