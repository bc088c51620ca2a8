#include "bitgrad/train/run_folder.h"

#include <cstdio>

#include "bitgrad/base/file.h"

namespace bitgrad {
namespace {

void require_run_folder(const std::string& folder) {
  if (!file_system().exists(folder + "/config.yaml"))
    fail_with(ErrorCode::kData, "run folder", "'", folder, "' has no config.yaml: it is not a run folder");
}

// Makes the next free <parent>/NNNN.
std::string make_numbered(const std::string& parent) {
  file_system().make_directories(parent);
  for (int i = 1; i < 1000000; ++i) {
    char number[16];
    std::snprintf(number, sizeof number, "%04d", i);
    const std::string path = parent + '/' + number;
    if (file_system().make_directory(path)) return path;
  }
  fail("run folder", "'", parent, "' has no free number left");
}

}  // namespace

std::string create_run_folder(const RunConfig& config, const std::string& out) {
  const std::string path = out.empty() ? make_numbered(config.run.dir + '/' + config.run.name) : out;
  if (file_system().exists(path)) {
    require(file_system().is_directory(path), "run folder", "'", path, "' is a file");
    require(file_system().list(path).empty(), "run folder", "'", path,
            "' is not empty, and a run never overwrites one. Name another with --out, or go on with --resume ", path);
  }
  file_system().make_directories(path);
  write_file_atomically(path + "/config.yaml", to_yaml(config));
  write_file_atomically(path + "/config.source.yaml", config.origin.text);
  return path;
}

std::unique_ptr<FileLock> lock_run_folder(const std::string& folder) {
  auto lock = file_system().lock_directory(folder);
  require(lock != nullptr, "run folder", "another process trains in '", folder,
          "'. Wait for its end, or stop it first");
  // What a process that was killed had not finished: nobody else writes here.
  for (const std::string& name : file_system().list(folder))
    if (detail::is_temporary(name)) file_system().remove(folder + '/' + name);
  return lock;
}

RunConfig run_folder_config(const std::string& folder, const std::vector<std::string>& overrides) {
  require_run_folder(folder);
  return load_config(folder + "/config.yaml", overrides);
}

std::string run_folder_checkpoint(const std::string& folder) {
  require_run_folder(folder);
  const std::string path = folder + "/last.safetensors";
  if (!file_system().exists(path))
    fail_with(ErrorCode::kData, "run folder", "'", folder,
              "' has no last.safetensors: the run ended before its first checkpoint. Start it again: bitgrad train ",
              folder, "/config.yaml");
  return path;
}

std::string checkpoint_of(const std::string& folder_or_file) {
  return file_system().is_directory(folder_or_file) ? run_folder_checkpoint(folder_or_file) : folder_or_file;
}

}  // namespace bitgrad
