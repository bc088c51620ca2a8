// The files of a run that hold its model: checkpoints and the report.
#include <charconv>
#include <map>
#include <string>
#include <utility>

#include "bitgrad/base/file.h"
#include "bitgrad/base/log.h"
#include "bitgrad/report/report.h"
#include "run/run_parts.h"
#include "train/train_state.h"

namespace bitgrad {

bool Trainer::Files::last_is_here() const {
  if (folder_.empty()) return true;
  const std::string last = folder_ + "/last.safetensors";
  if (!file_system().exists(last)) return false;
  try {
    const CheckpointHeader there = read_checkpoint_header(last);
    return there.microbatch + there.skipped.microbatches == t_.done_microbatches();
  } catch (const Error&) {
    return false;
  }
}

void Trainer::Files::save(std::string_view name) {
  if (folder_.empty()) return;
  metrics_->flush();
  t_.counters_.metrics_bytes = metrics_->written().bytes;
  t_.counters_.metrics_crc = metrics_->written().crc32c;
  write(name);
  if (name != "last") return;
  if (t_.config_.checkpoint.keep > 0) keep_checkpoint();
  detail::TrainState& state = t_.learner_->train_state();
  if (state.average) state.with_average([&] { write("average", /*average=*/true); });
}

void Trainer::Files::write(std::string_view name, bool average) {
  const std::string path = concat(folder_, '/', name, ".safetensors");
  RunCounters counters = t_.counters_;
  counters.average = average;
  save_checkpoint(path, *t_.learner_, counters, t_.config_yaml_, t_.tokenizer_, t_.table_);
  if (hooks_.on_checkpoint) hooks_.on_checkpoint(path);
}

// Writes step_N.safetensors, and removes the earliest of them past checkpoint.keep. Those of later steps are of a
// continuation that was given up, and go first.
void Trainer::Files::keep_checkpoint() {
  constexpr std::string_view kStart = "step_", kEnd = ".safetensors";
  const int64_t now = t_.learner_->state().step;
  write(concat(kStart, now));
  std::map<std::pair<bool, int64_t>, std::string> kept;
  for (const std::string& name : file_system().list(folder_)) {
    if (!name.starts_with(kStart) || !name.ends_with(kEnd)) continue;
    const char* const begin = name.data() + kStart.size();
    const char* const end = name.data() + name.size() - kEnd.size();
    int64_t step = 0;
    if (const auto read = std::from_chars(begin, end, step); read.ec == std::errc() && read.ptr == end)
      kept[{step <= now, step}] = folder_ + '/' + name;
  }
  for (; std::ssize(kept) > t_.config_.checkpoint.keep; kept.erase(kept.begin()))
    file_system().remove(kept.begin()->second);
}

void Trainer::Files::write_report() {
  if (folder_.empty() || !t_.config_.log.report) return;
  try {
    detail::record_model(folder_, *t_.learner_);
    write_file_atomically(folder_ + "/report.html", html_report({folder_}));
  } catch (const std::exception& e) {
    const std::string_view why = e.what();
    log(LogLevel::kWarning,
        concat("report.html is not written: ", why, why.ends_with('.') ? "" : ".", " Later: bitgrad report ", folder_));
  }
}

}  // namespace bitgrad
