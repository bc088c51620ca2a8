// Run folders: never overwritten. Their files: docs/file_format.md, "Run folder".
#pragma once

#include <memory>
#include <string>

#include "bitgrad/base/file.h"
#include "bitgrad/train/checkpoint.h"
#include "bitgrad/train/config.h"

namespace bitgrad {

struct RunFolder {
  std::string path;
  std::unique_ptr<FileLock> lock;  // keeps other processes out while it lives
};
// `out` names the exact folder, which must be absent or empty; empty: the next free <run.dir>/<run.name>/NNNN. Creates
// it, locks it, then writes config.yaml and the configuration as given (config.source.yaml). Of several processes that
// start in one folder one gets it; the others get an Error and write nothing. Throws Error when `out` holds anything.
RunFolder start_run_folder(const RunConfig& config, const std::string& out);
// The same, but the folder is free again: returns its path.
std::string create_run_folder(const RunConfig& config, const std::string& out);
// Keeps a second process from training in the same folder, and removes what a killed one left half written. Throws
// Error while another one holds it.
std::unique_ptr<FileLock> lock_run_folder(const std::string& folder);
// Of a folder that a run made: config.yaml as it is now, and the last checkpoint. Throw Error(kData) when they are not
// there. `overrides`: key=value, as load_config.
RunConfig run_folder_config(const std::string& folder, const std::vector<std::string>& overrides = {});
std::string run_folder_checkpoint(const std::string& folder);
// The configuration that the run of `folder` goes on with: the one in `saved`, the header of its last checkpoint.
// Throws Error that lists the keys, with both values, where config.yaml says otherwise; a config.yaml that cannot be
// read, or differs in device.* alone, is a warning. `overrides`: key=value, as load_config.
RunConfig resumed_config(const std::string& folder, const CheckpointHeader& saved,
                         const std::vector<std::string>& overrides = {});
// The last checkpoint of a run folder; a file as it is.
// data.root of the config.yaml beside a file of a run: where its data was; empty: there is none.
std::string remembered_root(const std::string& file);
std::string checkpoint_of(const std::string& folder_or_file);

}  // namespace bitgrad
