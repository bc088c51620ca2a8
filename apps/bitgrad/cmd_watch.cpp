// bitgrad watch RUN: shows the progress of a run in another process, from its metrics.jsonl. Only reads.
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <iostream>
#include <memory>
#include <thread>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/train/run_folder.h"
#include "bitgrad/train/trainer.h"
#include "command.h"
#include "progress.h"

namespace bitgrad::cli {
namespace {

volatile std::sig_atomic_t g_ended = 0;

// The complete lines that were appended to a file since the last call. If the file became shorter (a resumed run
// removes lines), reading continues from its new end.
class NewLines {
 public:
  explicit NewLines(std::string path) : path_(std::move(path)) {}
  std::vector<std::string> read() {
    std::ifstream file(path_, std::ios::binary);
    if (!file) return {};
    file.seekg(0, std::ios::end);
    const auto size = static_cast<int64_t>(file.tellg());
    if (size < at_) {
      at_ = size;
      rest_.clear();
    }
    std::string bytes(static_cast<size_t>(size - at_), '\0');
    file.seekg(at_);
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    at_ += file.gcount();
    rest_.append(bytes, 0, static_cast<size_t>(file.gcount()));
    std::vector<std::string> lines;
    for (size_t end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n')) {
      lines.push_back(rest_.substr(0, end));
      rest_.erase(0, end + 1);
    }
    return lines;
  }

 private:
  std::string path_, rest_;
  int64_t at_ = 0;
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

std::string status_of(const std::string& folder) {
  try {
    const std::vector<uint8_t> bytes = read_file(folder + "/summary.json", 1 << 20);
    return Json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}).at("status").get<std::string>();
  } catch (const std::exception&) {
    return "";
  }
}

int run_watch(const std::string& folder) {
  const RunConfig config = run_folder_config(folder);
  const Lengths lengths = lengths_of(config);
  std::signal(SIGINT, [](int) { g_ended = 1; });
  std::signal(SIGTERM, [](int) { g_ended = 1; });
  Progress progress(/*quiet=*/false);
  NewLines lines(folder + "/metrics.jsonl");
  bool live = true;
  while (live && g_ended == 0) {
    live = trains(folder);  // checked before reading, so that no line is missed
    for (const std::string& text : lines.read()) {
      const Json line = Json::parse(text);
      const std::string event = line.value("event", std::string());
      if (event == "train") progress.tick(train_event(line, config, lengths));
      if (event == "eval") progress.evaluated(eval_event(line));
    }
    if (live) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  if (live) return 0;  // interrupted; the run continues without a viewer
  const std::string status = status_of(folder);
  progress.line(concat(
      folder, ": ", status.empty() ? "no process trains here, and the run has not ended" : status,
      status == "finished" || status == "failed" ? "" : concat(". Resume with: bitgrad train --resume ", folder)));
  return 0;
}

}  // namespace

Run setup_watch(Arguments& args) {
  auto folder = std::make_shared<std::string>();
  args.option("run", *folder, "The run folder. Ctrl-C ends the view, not the run.").required();
  return [folder] { return run_watch(*folder); };
}

}  // namespace bitgrad::cli
