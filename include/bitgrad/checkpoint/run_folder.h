// Run folders, which are never overwritten. Their files: docs/file_format.md, "Run folder".
#pragma once

#include <memory>
#include <string>

#include "bitgrad/base/file.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/config/config.h"

namespace bitgrad {

struct RunFolder {
  std::string path;
  std::unique_ptr<FileLock> lock;  // keeps other processes out while it exists
};
// Creates and locks a run folder, then writes config.yaml and the configuration as given (config.source.yaml). `out` is
// the exact folder, which must be absent or hold nothing; with out = "" it is the next free <run.dir>/<run.name>/NNNN.
// If several processes start in one folder, one gets it; the others get an Error and write nothing. Throws Error if
// `out` contains anything.
RunFolder start_run_folder(const RunConfig& config, const std::string& out);
// Locks the folder against other training processes and removes files that a killed process left half written. Throws
// Error if another process holds the lock.
std::unique_ptr<FileLock> lock_run_folder(const std::string& folder);
// The current config.yaml of a run's folder. Throws Error(kData) if it is missing. `overrides`: key=value, as in
// load_config.
RunConfig run_folder_config(const std::string& folder, const std::vector<std::string>& overrides = {});
// Path of a run's last checkpoint: last.safetensors, or best.safetensors (with a warning) if the run was killed before
// it saved the former. Throws Error(kData) if both are missing.
std::string run_folder_checkpoint(const std::string& folder);
// Path of the checkpoint to resume from: the later one of last.safetensors and best.safetensors. Both hold the whole
// state of training, and a run that was killed between two saves of the former may have a newer latter. Errors as
// run_folder_checkpoint.
std::string newest_checkpoint(const std::string& folder);
// Both steps in words if best.safetensors is later than last.safetensors, as a run leaves them that is cut between the
// two; else empty. Such a run is not finished, whatever its summary says.
std::string stale_last(const std::string& folder);
// Returns the configuration with which a run continues from a checkpoint in its folder: the one in `saved`, the header
// of the checkpoint, with the paths of samples in config.yaml (config/resume.h). Throws Error that lists the differing
// keys with both values if config.yaml disagrees in others. A config.yaml that cannot be read, or differs only in
// device.*, train.stop or train.early_stop, is a warning. `overrides`: key=value, as in load_config.
RunConfig resumed_config(const std::string& checkpoint, const CheckpointHeader& saved,
                         const std::vector<std::string>& overrides = {});
// Where the data of a run were: data.root of the config.yaml beside one of its files; empty if there is none. Throws
// ConfigError if that names a plugin that is not loaded.
std::string remembered_root(const std::string& file);
// Which checkpoint of a run folder a reader takes.
enum class CheckpointChoice : uint8_t {
  kChosen,  // the best one if data.valid chose it, else the last
  kBest,
  kLast,
};
// Maps a run folder to one of its checkpoints; returns a file path unchanged. kChosen takes the last one, too, if no
// evaluation since the last change of the model's form has chosen another. Logs the choice of a
// folder with two checkpoints as info; `told`, if given, becomes that line, or empty. Errors as run_folder_checkpoint;
// Error if kBest or kLast is asked of a file, or kBest of a folder without best.safetensors.
std::string checkpoint_of(const std::string& folder_or_file, CheckpointChoice choice = CheckpointChoice::kChosen,
                          std::string* told = nullptr);

}  // namespace bitgrad
