#include "bitgrad/checkpoint/run_folder.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "bitgrad/base/file.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"
#include "bitgrad/config/resume.h"
#include "checkpoint/load.h"
#include "config/steps.h"

namespace bitgrad {
namespace {

// What a folder of another program is, and how to read it; empty: unknown.
std::string foreign_folder(const std::string& folder) {
  const auto has = [&](const char* file) { return file_system().exists(concat(folder, '/', file)); };
  if (has("adapter_config.json")) return "It holds adapters of PEFT: adapters.init_from starts from them";
  if (has("pytorch_model.bin") && !has("model.safetensors"))
    return "It holds pytorch_model.bin, a checkpoint of PyTorch (pickle), which is never run. In Python: "
           "model.save_pretrained(FOLDER, safe_serialization=True)";
  if (has("config.json"))
    return concat("It is a folder of Hugging Face: bitgrad import ", folder, " -o model.safetensors");
  return {};
}

void require_run_folder(const std::string& folder) {
  if (file_system().exists(folder + "/config.yaml")) return;
  const std::string known = foreign_folder(folder);
  fail_with(ErrorCode::kData, "run folder", "'", printable(folder), "' has no config.yaml: it is not a run folder",
            known.empty() ? "" : concat(". ", known));
}

// Whether the configuration beside a model names plugins, which `bitgrad train` would load.
bool names_plugins(const std::string& folder) {
  constexpr int64_t kMostText = int64_t{1} << 20;
  const std::vector<uint8_t> bytes = read_file(folder + "/config.yaml", kMostText);
  return std::string(bytes.begin(), bytes.end()).find("plugins") != std::string::npos;
}

std::unique_ptr<FileLock> lock_or_fail(const std::string& folder) {
  auto lock = file_system().lock_directory(folder);
  require(lock != nullptr, "run folder", "another process trains in '", folder,
          "'. Wait until it ends, or stop it first");
  return lock;
}

// Creates the next free <parent>/NNNN.
std::string make_numbered(const std::string& parent) {
  file_system().make_directories(parent);
  for (int i = 1; i < 1000000; ++i) {
    char number[16];
    std::snprintf(number, sizeof number, "%04d", i);
    std::string path = parent + '/' + number;
    if (file_system().make_directory(path)) return path;
  }
  fail("run folder", "'", parent, "' has no free run number left");
}

}  // namespace

RunFolder start_run_folder(const RunConfig& config, const std::string& out) {
  require(!config.quant.budget, "run folder",
          "a run keeps the rules that quant.budget became, got the budget. Hint: "
          "resolve_budget(config), bitgrad/tools/budget.h");
  const std::string path = out.empty() ? make_numbered(config.run.dir + '/' + config.run.name) : out;
  require(!file_system().exists(path) || file_system().is_directory(path), "run folder", "'", path, "' is a file");
  file_system().make_directories(path);
  // If several processes start in one folder, the one that gets the lock continues. The folder is checked and written
  // under that lock.
  RunFolder folder{path, lock_or_fail(path)};
  require(
      file_system().list(path).empty(), "run folder", "'", path,
      "' is not empty, and a run never overwrites one. Name another with --out, or continue this one with --resume ",
      path);
  write_file_atomically(path + "/config.yaml", to_yaml(config));
  write_file_atomically(path + "/config.source.yaml", config.origin.text);
  return folder;
}

std::unique_ptr<FileLock> lock_run_folder(const std::string& folder) {
  auto lock = lock_or_fail(folder);
  // Left by a process that was killed: with the lock held, nobody else is writing here.
  for (const std::string& name : file_system().list(folder))
    if (detail::is_temporary(name)) file_system().remove(folder + '/' + name);
  return lock;
}

RunConfig run_folder_config(const std::string& folder, const std::vector<std::string>& overrides) {
  require_run_folder(folder);
  return load_config(folder + "/config.yaml", overrides, {true, {}, ConfigSource::Plugins::kLoaded});
}

namespace {

constexpr size_t kListedKeys = 20;

// "optim.lr: got 0.5, expected 0.02; ...". `a` is config.yaml.
std::string listed(const std::vector<ConfigDifference>& differences) {
  const std::string none = "nothing";
  std::string text;
  for (size_t i = 0; i < std::min(differences.size(), kListedKeys); ++i) {
    const ConfigDifference& d = differences[i];
    text += concat(text.empty() ? "" : "; ", d.key, ": got ", d.a.value_or(none), ", expected ", d.b.value_or(none));
  }
  if (differences.size() > kListedKeys) text += concat("; and ", differences.size() - kListedKeys, " more keys");
  return text;
}

// Compares config.yaml with the configuration in a checkpoint, and takes the paths of samples from it: a resume with
// other paths writes them there before it saves.
void take_config_file(const std::string& path, RunConfig& saved) {
  std::vector<ConfigDifference> differences;
  try {
    const RunConfig written = load_config(path, {}, {.plugins = ConfigSource::Plugins::kLoaded});
    take_sample_paths(written, saved);
    differences = config_differences(written, saved);
  } catch (const ConfigError& error) {
    const std::string report = error.what();
    log(LogLevel::kWarning,
        concat(path, " cannot be read: the run continues with the configuration in its checkpoint (",
               report.substr(0, report.find('\n')), ')'));
    return;
  }
  if (differences.empty()) return;
  const auto of_checkpoint = [&](const ConfigDifference& d) {
    return resume_rule(saved, d.key) == ResumeRule::kOfCheckpoint;
  };
  require(std::all_of(differences.begin(), differences.end(), of_checkpoint), "resume", path,
          " is not the configuration that the run was saved with. ", listed(differences),
          ". Restore it, or pass --use-config to use it");
  log(LogLevel::kWarning,
      concat(path, " is ignored for device.*, train.stop and train.early_stop, the checkpoint counts: ",
             listed(differences)));
}

}  // namespace

RunConfig resumed_config(const std::string& checkpoint, const CheckpointHeader& saved,
                         const std::vector<std::string>& overrides) {
  const std::string root = remembered_root(checkpoint);
  RunConfig config = parse_config(saved.config, checkpoint, {}, {.plugins = ConfigSource::Plugins::kLoaded});
  const std::string before = to_portable_yaml(config);
  take_config_file((std::filesystem::path(checkpoint).parent_path() / "config.yaml").string(), config);
  const std::string now = to_portable_yaml(config);
  return parse_config(now == before ? saved.config : now, checkpoint, overrides,
                      {true, root, ConfigSource::Plugins::kLoaded});
}

std::string remembered_root(const std::string& file) {
  const size_t slash = file.rfind('/');
  const std::string config = (slash == std::string::npos ? "" : file.substr(0, slash + 1)) + "config.yaml";
  return file_system().exists(config) ? config::recorded_root(config) : std::string();
}

std::string run_folder_checkpoint(const std::string& folder) {
  std::string path = folder + "/last.safetensors", best = folder + "/best.safetensors";
  if (!file_system().exists(path)) {
    require_run_folder(folder);
    if (file_system().exists(best)) {
      log(LogLevel::kWarning, concat(folder, " has no last.safetensors: best.safetensors is used"));
      return best;
    }
    fail_with(ErrorCode::kData, "run folder", "'", folder,
              "' has no last.safetensors: the run ended before its first checkpoint. Start it again: bitgrad train ",
              folder, "/config.yaml",
              names_plugins(folder) ? ". It names plugins, which are then loaded: read them before" : "");
  }
  return path;
}

namespace {

// Without the checksum of the data: whoever reads the file verifies it.
CheckpointHeader quick_header(const std::string& path) {
  return checkpoint::read_checkpoint_header(SafetensorsFile::open(path));
}

}  // namespace

std::string stale_last(const std::string& folder) {
  const std::string last = folder + "/last.safetensors", best = folder + "/best.safetensors";
  if (!file_system().exists(best) || !file_system().exists(last)) return {};
  try {
    const int64_t saved = quick_header(last).step, newer = quick_header(best).step;
    return newer <= saved ? std::string()
                          : concat("best.safetensors is of step ", newer, ", last.safetensors of step ", saved);
  } catch (const Error&) {  // whoever reads the damaged one reports it
    return {};
  }
}

std::string newest_checkpoint(const std::string& folder) {
  const std::string last = run_folder_checkpoint(folder), stale = stale_last(folder);
  if (stale.empty()) return last;
  log(LogLevel::kWarning, concat(folder, " is resumed from best.safetensors: ", stale));
  return folder + "/best.safetensors";
}

namespace {

// Why the last checkpoint of a folder is taken, whose best one is not named; empty if the best one is.
std::string why_last(const CheckpointHeader& last) {
  const RunCounters& c = last.counters;
  if (c.selected_on != "valid")
    return c.selected_on.empty() ? "nothing chose a best model" : "no data.valid chose the best model";
  return c.best_step == 0 ? "nothing was evaluated since the model got its form" : "";
}

}  // namespace

std::string checkpoint_of(const std::string& folder_or_file, CheckpointChoice choice, std::string* told) {
  if (told != nullptr) told->clear();
  const bool folder = file_system().is_directory(folder_or_file);
  require(folder || choice == CheckpointChoice::kChosen, "run folder", '\'', folder_or_file,
          "': best and last select a checkpoint of a run folder, which this is not");
  if (!folder) return folder_or_file;
  const std::string best = folder_or_file + "/best.safetensors";
  const bool both = file_system().exists(best) && file_system().exists(folder_or_file + "/last.safetensors");
  if (choice == CheckpointChoice::kBest && !file_system().exists(best)) {
    require_run_folder(folder_or_file);
    fail_with(ErrorCode::kData, "run folder", "'", folder_or_file,
              "' has no best.safetensors: no evaluation chose one");
  }
  if (!both) return choice == CheckpointChoice::kBest ? best : run_folder_checkpoint(folder_or_file);
  const std::string last = folder_or_file + "/last.safetensors";
  const std::string stale = stale_last(folder_or_file);
  if (!stale.empty())
    log(LogLevel::kWarning, concat(folder_or_file, ": ", stale,
                                   ": the run was cut between the two, or goes on now. bitgrad train --resume ",
                                   folder_or_file, " writes what is missing"));
  const std::string why = choice == CheckpointChoice::kLast   ? "as asked"
                          : choice == CheckpointChoice::kBest ? ""
                                                              : why_last(quick_header(stale.empty() ? last : best));
  const std::string line =
      why.empty()
          ? concat("the model is ", best, choice == CheckpointChoice::kBest ? ", as asked" : ", which data.valid chose")
          : concat("the model is ", last, ": ", why);
  log(LogLevel::kInfo, line);
  if (told != nullptr) *told = line;
  return why.empty() ? best : last;
}

}  // namespace bitgrad
