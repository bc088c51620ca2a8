// What `bitgrad train --resume RUN [key=value ...]` goes on with.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bitgrad/base/file.h"
#include "bitgrad/train/trainer.h"

namespace bitgrad::cli {

struct ResumedRun {
  std::string folder = {}, checkpoint = {};
  std::unique_ptr<FileLock> lock = {};
};

// Locks the folder of a run, then finds its checkpoint: a run that another process trains is told apart from one that
// ended before it saved. Errors as lock_run_folder and run_folder_checkpoint.
ResumedRun open_resumed_run(const std::string& folder);

// Its configuration, with `words` (key=value, as overrides) in place of what it was saved with. use_config: that of
// config.yaml. Error(kUsage) that lists the keys, with both values, which no resumed run may change: all but device.*,
// data.root, train.stop and train.early_stop. The header is read first: the configuration may name dtypes that the file
// brings along.
RunConfig config_of_resumed(const ResumedRun& run, const std::vector<std::string>& words, bool use_config);

// Where there is nothing left to train and the summary is written: says so, with what trains longer, and returns true.
bool told_finished(Trainer& trainer, const ResumedRun& run);

// Writes the configuration of a run that `words` changed to its config.yaml.
void keep_changed_config(const Trainer& trainer, const ResumedRun& run, const std::vector<std::string>& words);

}  // namespace bitgrad::cli
