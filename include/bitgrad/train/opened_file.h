// A checkpoint or model file, opened for use: its header, its configuration and the form of its input.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bitgrad/train/checkpoint.h"
#include "bitgrad/train/config.h"
#include "bitgrad/train/learner.h"

namespace bitgrad {

struct OpenedFile {
  std::string path = {}, kind = {};  // kind: "checkpoint", "model"
  CheckpointHeader header = {};
  RunConfig config = {};
  Form input = {};     // of the model: shape of a sample, ids
  bool of_run = true;  // false: written by a program of its own, so `config` says nothing of it
};
// Of a run folder (its last checkpoint) or a file; overrides: of its configuration. Plugins that it needs were loaded
// before (load_plugin), or are found where the run found them. Throws Error(kData), ConfigError.
OpenedFile open_file(const std::string& target, const std::vector<std::string>& overrides = {});
// The model of a file, ready to predict. `data` may be nullptr: nothing is read then but the file.
std::unique_ptr<Learner> load_file(const OpenedFile& file, const Dataset* data);

}  // namespace bitgrad
