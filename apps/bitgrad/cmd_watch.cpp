// bitgrad watch RUN: shows the progress of a run in another process, from its metrics.jsonl. Only reads.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "bitgrad/checkpoint/run_folder.h"
#include "bitgrad/run/trainer.h"
#include "command.h"
#include "open_file.h"
#include "progress.h"

namespace bitgrad::cli {
namespace {

volatile std::sig_atomic_t g_ended = 0;

struct WatchOptions {
  std::string folder;
  std::vector<std::string> plugins;
};

// The complete lines that were appended to a file since the last call, with their numbers. If the file became shorter
// (a resumed run removes lines), reading continues from its new end.
class NewLines {
 public:
  explicit NewLines(std::string path) : path_(std::move(path)) {}
  // Calls f(line, number) for each, until f returns false.
  template <typename F>
  void read(F f) {
    if (!file_system().exists(path_)) return;
    const std::unique_ptr<InputFile> file = file_system().open_read(path_);
    if (file->size() < at_) skip_to(*file, file->size());
    std::string part(size_t{1} << 20, '\0');
    while (const size_t got = file->read_at(at_, part.data(), part.size())) {
      at_ += static_cast<int64_t>(got);
      size_t begin = 0;
      for (size_t end = 0; (end = std::string_view(part).substr(0, got).find('\n', begin)) != std::string::npos;
           begin = end + 1) {
        rest_.append(part, begin, end - begin);
        if (!f(std::string_view(rest_), ++number_)) return;
        rest_.clear();
      }
      rest_.append(part, begin, got - begin);
      if (rest_.size() > kMostBytes)
        fail_with(ErrorCode::kData, "watch", path_, ':', number_ + 1, ": the line has more than ", kMostBytes,
                  " bytes");
    }
  }

 private:
  static constexpr size_t kMostBytes = size_t{1} << 24;  // of a line

  void skip_to(InputFile& file, int64_t end) {
    std::string part(size_t{1} << 20, '\0');
    rest_.clear();
    for (at_ = number_ = 0; at_ < end;) {
      const auto want = static_cast<size_t>(std::min<int64_t>(end - at_, std::ssize(part)));
      const size_t got = file.read_at(at_, part.data(), want);
      if (got == 0) break;
      number_ += std::count(part.begin(), part.begin() + static_cast<int64_t>(got), '\n');
      at_ += static_cast<int64_t>(got);
    }
  }

  std::string path_, rest_;
  int64_t at_ = 0, number_ = 0;
};

// Lengths of a run; 0: unknown, because its data are no longer here.
struct Lengths {
  int64_t samples = 0, microbatches = 0, steps = 0, epochs = 0;
};

Lengths lengths_of(const RunConfig& config) {
  Lengths out;
  const Quantity& stop = config.train.stop;
  const int64_t accumulate = config.batch.accumulate();
  try {
    out.samples = open_dataset(config, config.data.train)->epoch_order().samples;
  } catch (const Error&) {
    out.epochs = stop.unit == Quantity::Unit::kEpochs ? stop.value : 0;
    out.steps = stop.unit == Quantity::Unit::kSteps ? stop.value : 0;
    return out;
  }
  const int64_t per_epoch = epoch_batches(config, out.samples).count;
  out.microbatches = stop.value * (stop.unit == Quantity::Unit::kEpochs ? per_epoch : accumulate);
  out.steps = (out.microbatches + accumulate - 1) / accumulate;
  out.epochs = (out.microbatches + per_epoch - 1) / per_epoch;
  return out;
}

double number_of(const Json& line, std::string_view name, double otherwise) {
  return line.contains(name) && line.at(name).is_number() ? line.at(name).get<double>() : otherwise;
}

TrainEvent train_event(const Json& line, const RunConfig& config, const Lengths& lengths) {
  TrainEvent e;
  e.step = line.at("step").get<int64_t>();
  e.epoch = line.at("epoch").get<int64_t>();
  e.steps_total = lengths.steps;
  e.epochs_total = lengths.epochs;
  e.microbatch = e.step * config.batch.accumulate();
  e.microbatches_total = lengths.microbatches;
  e.loss = number_of(line, "loss", 0);
  e.accuracy = number_of(line, "accuracy", -1);
  e.lr = number_of(line, "lr", 0);
  e.samples_per_s = number_of(line, "samples_per_s", 0);
  e.tokens_per_s = number_of(line, "tokens_per_s", 0);
  e.gmacs_per_s = number_of(line, "gmacs_per_s", 0);
  e.mfu = number_of(line, "mfu", -1);
  const double left = static_cast<double>(std::max<int64_t>(e.steps_total - e.step, 0));
  if (e.samples_per_s > 0) e.eta_seconds = left * static_cast<double>(config.batch.global) / e.samples_per_s;
  return e;
}

EvalEvent eval_event(const Json& line) {
  EvalEvent e;
  e.split = line.at("split").get<std::string>();
  e.epoch = line.at("epoch").get<int64_t>();
  e.step = line.at("step").get<int64_t>();
  e.loss = number_of(line, "loss", 0);
  e.accuracy = number_of(line, "accuracy", -1);
  e.metric = e.accuracy >= 0 ? "accuracy" : "loss";
  if (line.contains("average"))
    e.average = Evaluation{number_of(line.at("average"), "loss", 0), number_of(line.at("average"), "accuracy", -1)};
  return e;
}

// If nobody holds the lock, nobody trains.
bool trains(const std::string& folder) { return file_system().lock_directory(folder) == nullptr; }

// Lines that cannot be read are left out: the run goes on whatever they are.
class Follower {
 public:
  Follower(const std::string& folder, const RunConfig& config)
      : path_(folder + "/metrics.jsonl"), config_(config), lengths_(lengths_of(config)), lines_(path_) {}
  void follow() {
    lines_.read([this](std::string_view text, int64_t number) {
      try {
        show(Json::parse(text));
      } catch (const JsonError& error) {
        if (++bad_ <= kTold)
          progress_.warn(concat(path_, ':', number, ": not a line of a run, skipped (", printable(error.what()), ')'));
      }
      return g_ended == 0;
    });
  }
  Progress& progress() { return progress_; }
  int64_t untold() const { return std::max<int64_t>(bad_ - kTold, 0); }

 private:
  static constexpr int64_t kTold = 10;

  void show(const Json& line) {
    const std::string& event = line.at("event").text();
    if (event == "train") progress_.tick(train_event(line, config_, lengths_));
    if (event == "eval") progress_.evaluated(eval_event(line));
  }

  const std::string path_;
  const RunConfig& config_;
  const Lengths lengths_;
  Progress progress_{/*quiet=*/false};
  NewLines lines_;
  int64_t bad_ = 0;
};

int run_watch(const WatchOptions& options) {
  const std::string& folder = options.folder;
  load_named_plugins(options.plugins);
  const RunConfig config = run_folder_config(folder);
  Follower follower(folder, config);
  Progress& progress = follower.progress();
  // After the data were opened: until here, a signal ends the process at once.
  std::signal(SIGINT, [](int) { g_ended = 1; });
  std::signal(SIGTERM, [](int) { g_ended = 1; });
  bool live = true;
  while (live && g_ended == 0) {
    live = trains(folder);  // checked before reading, so that no line is missed
    follower.follow();
    if (live && g_ended == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  if (follower.untold() > 0) progress.warn(concat("and ", follower.untold(), " more lines were skipped"));
  if (live || g_ended != 0) return 0;  // interrupted; the run continues without a viewer
  const std::string status = status_of_run(folder);
  progress.line(concat(
      folder, ": ", status.empty() ? "no process trains here, and the run has not ended" : status,
      status == "finished" || status == "failed" ? "" : concat(". Resume with: bitgrad train --resume ", folder)));
  return 0;
}

}  // namespace

Run setup_watch(Arguments& args) {
  auto options = std::make_shared<WatchOptions>();
  args.option("run", options->folder, "run folder; Ctrl-C ends the view, not the run").required();
  add_plugin_option(args, options->plugins);
  return [options] { return run_watch(*options); };
}

}  // namespace bitgrad::cli
