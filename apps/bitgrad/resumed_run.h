// The state and configuration from which `bitgrad train --resume RUN [key=value ...]` continues.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bitgrad/base/file.h"
#include "bitgrad/run/trainer.h"

namespace bitgrad::cli {

struct ResumedRun {
  std::string folder = {}, checkpoint = {};
  std::unique_ptr<FileLock> lock = {};
};

// Locks the folder of a run, then finds its checkpoint. A run that another process is training is distinguished from
// one that ended before it saved. Errors as in lock_run_folder and run_folder_checkpoint.
ResumedRun open_resumed_run(const std::string& folder);

// Returns its configuration with `words` (key=value overrides) applied. use_config: starts from config.yaml instead of
// the saved configuration. Throws Error(kUsage) that lists, with both values, the changed keys that a resumed run may
// not change: all but device.*, data.root, train.stop, train.early_stop and paths of data. Reads the header first,
// because the configuration may name dtypes that the file defines.
RunConfig config_of_resumed(const ResumedRun& run, const std::vector<std::string>& words, bool use_config);

// If nothing is left to train and the summary is written, prints so, with how to train longer, and returns true.
bool print_if_finished(Trainer& trainer, const ResumedRun& run);

// Writes the configuration of a run that `words` changed to its config.yaml.
void keep_changed_config(const Trainer& trainer, const ResumedRun& run, const std::vector<std::string>& words);

}  // namespace bitgrad::cli
