// An opened checkpoint or model file: header, configuration and input form.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/checkpoint/run_folder.h"
#include "bitgrad/config/config.h"
#include "bitgrad/train/learner.h"

namespace bitgrad {

struct OpenedFile {
  std::string path = {}, kind = {};  // kind: "checkpoint" or "model"
  CheckpointHeader header = {};
  RunConfig config = {};
  Form input = {};          // of the model: sample shape, ids
  std::string choice = {};  // which checkpoint of a run folder it is, and why (checkpoint_of); empty: no choice
  bool of_run = true;       // false: written by a program without a run; `config` is meaningless except for defaults
};
// Opens a run folder (a checkpoint as checkpoint_of chooses it) or a file. `overrides` apply to its configuration.
// Required plugins must have been loaded before (load_plugin). Throws Error(kData) or
// ConfigError.
OpenedFile open_file(const std::string& target, const std::vector<std::string>& overrides = {},
                     CheckpointChoice choice = CheckpointChoice::kChosen);
// Builds the file's model, ready to predict. `data` may be nullptr, in which case only the file is read.
std::unique_ptr<Learner> load_file(const OpenedFile& file, const Dataset* data);

}  // namespace bitgrad
