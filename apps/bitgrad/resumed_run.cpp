#include "resumed_run.h"

#include <algorithm>
#include <iostream>

#include "bitgrad/base/error.h"
#include "bitgrad/base/json.h"
#include "bitgrad/checkpoint/run_folder.h"
#include "bitgrad/config/resume.h"
#include "open_file.h"

namespace bitgrad::cli {
namespace {

RunConfig config_with(const ResumedRun& run, const CheckpointHeader& saved, const std::vector<std::string>& words,
                      bool use_config) {
  return use_config ? run_folder_config(run.folder, words) : resumed_config(run.checkpoint, saved, words);
}

bool summary_is_of_finished(const std::string& path) {
  if (!file_system().exists(path)) return false;
  constexpr int64_t kMost = int64_t{1} << 20;
  try {
    const std::vector<uint8_t> bytes = read_file(path, kMost);
    return Json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}).at("status") == "finished";
  } catch (const JsonError&) {
    return false;
  }
}

}  // namespace

ResumedRun open_resumed_run(const std::string& folder) {
  ResumedRun run{folder};
  const bool is_run =
      file_system().exists(folder + "/config.yaml") || file_system().exists(folder + "/last.safetensors");
  if (is_run) run.lock = lock_run_folder(folder);
  run.checkpoint = newest_checkpoint(folder);
  return run;
}

RunConfig config_of_resumed(const ResumedRun& run, const std::vector<std::string>& words, bool use_config) {
  const CheckpointHeader saved = read_checkpoint_header(run.checkpoint);
  RunConfig before = config_with(run, saved, {}, use_config);
  if (words.empty()) return before;
  RunConfig config = config_with(run, saved, words, use_config);
  std::string refused;
  for (const ConfigDifference& d : config_differences(config, before))
    if (resume_rule(before, d.key) == ResumeRule::kFixed)
      refused += concat(refused.empty() ? "" : "; ", d.key, ": got ", d.a.value_or("nothing"), ", the run has ",
                        d.b.value_or("nothing"));
  require(refused.empty(), "train", "--resume uses the configuration of the run folder: ", refused,
          ". Only device.*, data.root, train.stop and train.early_stop may change, and paths of the same samples "
          "(data.*.file, path, images, labels, targets, mask)");
  return config;
}

bool print_if_finished(Trainer& trainer, const ResumedRun& run) {
  if (!trainer.ended() || !summary_is_of_finished(run.folder + "/summary.json")) return false;
  if (run.checkpoint != run.folder + "/last.safetensors") return false;  // the run still has to write that
  const RunConfig& config = trainer.config();
  const bool early = trainer.done_microbatches() < trainer.total_microbatches();
  std::cout << "this run is finished: "
            << (early ? std::string("train.early_stop ended it")
                      : concat("train.stop (", config.train.stop, ") is reached"));
  if (const auto best = trainer.best_value()) {
    const bool percent = is_percentage(trainer.best().metric);
    std::cout << " (best " << *best << (percent ? " % " : " ") << best_place(trainer.counters(), config) << ')';
  }
  std::cout << "\nto train longer: bitgrad train --resume " << run.folder
            << (early ? " '~train.early_stop'" : " train.stop='N epochs'") << '\n';
  return true;
}

void keep_changed_config(const Trainer& trainer, const ResumedRun& run, const std::vector<std::string>& words) {
  const bool changes = std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    const std::string key = word.substr(0, word.find('='));
    return key.starts_with("train.") || key.starts_with("~train.") ||
           (key != "data.root" && resume_rule(trainer.config(), key) == ResumeRule::kSamplePath);
  });
  if (changes) write_file_atomically(run.folder + "/config.yaml", to_yaml(trainer.config()));
}

}  // namespace bitgrad::cli
