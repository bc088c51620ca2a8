// Run folders: never overwritten. config.yaml (resolved), metrics.jsonl, summary.json, train.log, last.safetensors,
// best.safetensors.
#pragma once

#include <memory>
#include <string>

#include "bitgrad/base/file.h"
#include "bitgrad/train/config.h"

namespace bitgrad {

// `out` names the exact folder, which must be absent or empty; empty: the next free <run.dir>/<run.name>/NNNN. Creates
// it, writes config.yaml and the configuration as given (config.source.yaml), returns its path. Throws Error when `out`
// holds anything.
std::string create_run_folder(const RunConfig& config, const std::string& out);
// Keeps a second process from training in the same folder. Throws Error while another one holds it.
std::unique_ptr<FileLock> lock_run_folder(const std::string& folder);
// Of a folder that a run made: its configuration and its last checkpoint. Throw Error(kData) when they are not there.
RunConfig run_folder_config(const std::string& folder);
std::string run_folder_checkpoint(const std::string& folder);

}  // namespace bitgrad
