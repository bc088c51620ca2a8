// Checkpoints and model files as the commands take them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bitgrad/train/trainer.h"

namespace bitgrad::cli {

struct OpenedFile {
  std::string path, kind;  // kind: "checkpoint", "model"
  CheckpointHeader header;
  RunConfig config;
  int64_t features = 0;  // of one sample
};
// Of a run folder (its last checkpoint) or a file. Throws Error(kData), ConfigError.
OpenedFile open_file(const std::string& target, const std::vector<std::string>& overrides = {});
// The model of a file, ready to predict. `data` may be nullptr: nothing is read then but the file.
std::unique_ptr<Learner> load_file(const OpenedFile& file, const Dataset* data);
// "checkpoint runs/a/last.safetensors: mnist, step 100, epoch 2, ..."
std::string describe(const OpenedFile& file);

}  // namespace bitgrad::cli
