// run.json: the environment of a run, once per start, and its table of layers. Read by reports, beside the metrics.
#pragma once

#include <string>

#include "bitgrad/config/config.h"
#include "bitgrad/train/learner.h"

namespace bitgrad::detail {

// Appends this start or resume, at the learner's step. Logs a warning if the file cannot be read or written.
void record_session(const std::string& folder, const RunConfig& config, Learner& learner);
// Stores the current table of layers. Errors as above.
void record_model(const std::string& folder, Learner& learner);

// {"commit", "branch", "changed" (number of tracked files with changes)} of the git repository that contains the
// current folder, as JSON; "null" if there is no repository or no git.
std::string git_state();

}  // namespace bitgrad::detail
