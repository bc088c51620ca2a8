#include "output_file.h"

#include <algorithm>
#include <filesystem>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"

namespace bitgrad::cli {
namespace {

// The files of a run folder (docs/configuration.md, run_folder.h).
constexpr const char* kRunFiles[] = {"config.yaml",   "config.source.yaml", "last.safetensors", "best.safetensors",
                                     "metrics.jsonl", "summary.json",       "train.log",        "results.csv",
                                     "run.json",      "evaluation.json"};

// True also for different names or links of one file.
bool same_file(const std::string& a, const std::string& b) {
  std::error_code absent;
  return a == b || std::filesystem::equivalent(a, b, absent);
}

bool is_file_of_run(const std::string& path, const std::string& folder) {
  if (!file_system().exists(folder + "/config.yaml")) return false;
  return std::any_of(std::begin(kRunFiles), std::end(kRunFiles),
                     [&](const char* name) { return same_file(path, folder + '/' + name); });
}

// A device, a pipe or a socket, which a new file would replace.
bool is_special(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_other(path, error);
}

}  // namespace

void require_writable(const std::string& path, bool force, std::initializer_list<std::string> inputs) {
  require(!path.empty(), "output", "needs a file to write: -o FILE");
  require(!file_system().is_directory(path), "output", "'", path, "' is a folder, expected the name of a file");
  const size_t slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  require(file_system().is_directory(folder), "output", "'", path, "': no such folder: '", folder,
          "'. Create it first");
  require(std::none_of(inputs.begin(), inputs.end(), [&](const std::string& input) { return same_file(path, input); }),
          "output", "'", path, "' is the input file. Name another one");
  require(!is_special(path), "output", "'", path, "' is a device or a pipe, expected the name of a file");
  require(!is_file_of_run(path, folder), "output", "'", path, "' belongs to the run in '", folder,
          "' and would be replaced. Name another file");
  require(force || !file_system().exists(path), "output", "'", path,
          "' exists. Name another file, or overwrite it with --force");
}

void require_writable_folder(const std::string& path, const std::string& file, bool force,
                             std::initializer_list<std::string> inputs) {
  require(!path.empty(), "output", "needs a folder to write: -o FOLDER");
  const bool exists = file_system().exists(path);
  require(!exists || file_system().is_directory(path), "output", "'", path,
          "' is a file, expected the name of a folder");
  const std::string whole = path + '/' + file;
  require(std::none_of(inputs.begin(), inputs.end(), [&](const std::string& input) { return same_file(whole, input); }),
          "output", "'", whole, "' is the input file. Name another folder");
  require(!file_system().exists(path + "/config.yaml"), "output", "'", path,
          "' is the folder of a run. Name another one");
  require(force || !exists, "output", "'", path, "' exists. Name another folder, or overwrite it with --force");
}

int64_t file_bytes(const std::string& path) { return static_cast<int64_t>(std::filesystem::file_size(path)); }

}  // namespace bitgrad::cli
