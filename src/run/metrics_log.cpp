#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/memory.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/run/metrics_log.h"

#include "io/event_file.h"

namespace bitgrad {

// A copy of metrics.jsonl in another format: results.csv, TensorBoard event files.
class detail::MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  virtual void line(const Json& object) = 0;
};

namespace {

using detail::MetricsSink;

template <typename F>
void for_each_line(std::string_view text, F&& f) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    try {
      f(Json::parse(text.substr(0, end)));
    } catch (const JsonError&) {  // a damaged line, which MetricsLog has warned about
    }
    text.remove_prefix(end + 1);
  }
}

// results.csv (docs/report.md): a row per evaluation, with values of the last train line before it; or, if the run does
// not evaluate, one per train line.
class CsvFile : public MetricsSink {
 public:
  CsvFile(const std::string& folder, std::string_view kept, MetricsOutputs outputs) : outputs_(std::move(outputs)) {
    const std::string path = folder + "/results.csv";
    std::string text = "step,epoch,split,loss";
    for (const std::string& name : outputs_.metrics) text += ',' + name;
    text += ",train_loss,train_accuracy,lr,samples_per_s,tokens_per_s\n";
    for_each_line(kept, [&](const Json& line) { text += row(line); });
    write_file_atomically(path, text);
    file_ = file_system().open_append(path);
  }
  void line(const Json& object) override {
    if (const std::string text = row(object); !text.empty()) file_->write(text.data(), text.size());
  }

 private:
  // The row completed by a line of metrics.jsonl; empty: none is.
  std::string row(const Json& line) {
    const std::string& event = line["event"].text();
    if (event == "train") train_ = line;
    if (event != (outputs_.evaluates ? "eval" : "train")) return {};
    const Json evaluation = outputs_.evaluates ? line : Json::object();
    std::string text = concat(cell(line, "step"), ',', cell(line, "epoch"), ',', evaluation.value("split", ""), ',',
                              cell(evaluation, "loss"));
    for (const std::string& name : outputs_.metrics) text += ',' + cell(evaluation, name);
    for (const char* name : {"loss", "accuracy", "lr", "samples_per_s", "tokens_per_s"})
      text += ',' + cell(train_, name);
    return text + '\n';
  }
  static std::string cell(const Json& line, const std::string& name) {
    return line.contains(name) && line[name].is_number() ? line[name].dump() : "";
  }
  const MetricsOutputs outputs_;
  Json train_ = Json::object();
  std::unique_ptr<OutputFile> file_;
};

// Event tags (docs/report.md): train/loss, train/lr, perf/samples_per_s, test/accuracy, quant/<layer>/<part>/<name>.
class Events : public MetricsSink {
 public:
  Events(const std::string& folder, int64_t keep_steps, std::string_view kept) : file_(folder, keep_steps + 1) {
    if (file_.first()) for_each_line(kept, [&](const Json& l) { line(l); });
  }
  void line(const Json& object) override {
    const std::string& event = object["event"].text();
    std::string prefix = "train/";
    if (event == "eval") prefix = object.value("split", "test") + '/';
    if (event == "quant") prefix = concat("quant/", object.value("layer", ""), '/', object.value("part", ""), '/');
    io::Scalars scalars;
    for (const auto& [name, value] : object.members()) {
      if (!value.is_number() || name == "step" || name == "epoch" || (event == "quant" && !of_quantization(name)))
        continue;
      const bool speed = name.ends_with("_per_s") || name == "mfu" || name == "wait" || name == "slowest_rank";
      scalars.emplace_back((speed ? "perf/" : prefix) + name, value.get<float>());
    }
    file_.write(object["step"].get<int64_t>(), scalars);
  }

 private:
  static bool of_quantization(std::string_view name) {
    constexpr std::string_view kNames[] = {"entropy",     "at_ends",    "saturated",   "pass",
                                           "sqnr_db",     "flip_rate",  "scale_drift", "flips_per_requantization",
                                           "oscillating", "oscillation"};
    for (const std::string_view known : kNames)
      if (name == known) return true;
    return false;
  }
  io::EventFile file_;
};

// For a run that continues after step `keep_steps`; `kept` is the present content of metrics.jsonl.
std::vector<std::unique_ptr<MetricsSink>> metrics_sinks(const std::string& folder, int64_t keep_steps,
                                                        std::string_view kept, const MetricsOutputs& outputs) {
  std::vector<std::unique_ptr<MetricsSink>> sinks;
  if (outputs.csv) sinks.push_back(std::make_unique<CsvFile>(folder, kept, outputs));
  if (outputs.tensorboard) sinks.push_back(std::make_unique<Events>(folder, keep_steps, kept));
  return sinks;
}

// Rounded to float, for shorter lines; null for NaN and Inf, which JSON lacks.
Json number(double x) {
  if (!std::isfinite(x)) return nullptr;
  return std::stod(concat(static_cast<float>(x)));
}

// All digits, so that every reader gets the number that `eval --json` prints.
Json percent(double x) { return x < 0 || !std::isfinite(x) ? Json(nullptr) : Json(x); }

// The best or last value of the metric; runs of accuracy keep it as such.
Json value_of_metric(const TrainOutcome& o, double accuracy, const std::optional<double>& value) {
  if (o.counters.metric.empty()) return percent(accuracy);
  return value ? Json(*value) : Json(nullptr);
}

WrittenSum sum_of(std::string_view text) {
  return {static_cast<int64_t>(text.size()), crc32c(text.data(), text.size())};
}

// The lines of metrics.jsonl.
struct Lines {
  std::string kept;
  std::vector<int64_t> unreadable;  // line numbers from 1
  bool cut = false;                 // the last line has no newline
};

// The step of a line; nullopt if it is no line of metrics.jsonl.
std::optional<int64_t> step_of(std::string_view line) {
  try {
    const Json j = Json::parse(line);
    j.at("event").text();
    return j.at("step").get<int64_t>();
  } catch (const JsonError&) {
    return std::nullopt;
  }
}

Lines lines_of(std::string_view text, int64_t keep_steps) {
  Lines out;
  int64_t line_number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    out.cut = end == std::string_view::npos;
    if (out.cut) break;
    const std::string_view line = text.substr(0, end + 1);
    const std::optional<int64_t> step = step_of(line);
    ++line_number;
    if (!step) out.unreadable.push_back(line_number);
    if (step && *step <= keep_steps) out.kept += line;
    text.remove_prefix(line.size());
  }
  return out;
}

std::string numbers_text(const std::vector<int64_t>& numbers) {
  constexpr size_t kListed = 20;
  std::string text = numbers.size() == 1 ? "line " : "lines ";
  for (size_t i = 0; i < std::min(numbers.size(), kListed); ++i) text += concat(i == 0 ? "" : ", ", numbers[i]);
  return numbers.size() > kListed ? concat(text, " and ", numbers.size() - kListed, " more") : text;
}

// Keeps a copy of a damaged file, which is about to be replaced, and returns its name.
std::string keep_damaged(const std::string& path, std::string_view text) {
  std::string name = path + ".damaged";
  for (int i = 2; file_system().exists(name); ++i) name = concat(path, ".damaged.", i);
  write_file_atomically(name, text);
  return name;
}

}  // namespace

MetricsLog::~MetricsLog() = default;

MetricsLog::MetricsLog(const std::string& folder, int64_t keep_steps, const WrittenSum& saved,
                       const MetricsOutputs& outputs) {
  const std::string path = folder + "/metrics.jsonl";
  std::string kept;
  if (file_system().exists(path)) {
    const std::vector<uint8_t> bytes = file_system().read(path);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const Lines lines = lines_of(text, keep_steps);
    const std::string_view begin = text.substr(0, static_cast<size_t>(saved.bytes));
    const bool untouched =
        saved.bytes > 0 && begin.size() == static_cast<size_t>(saved.bytes) && sum_of(begin) == saved;
    // Drop everything written after the checkpoint, even lines of its own step: the run will write them again.
    kept = untouched ? lines_of(begin, keep_steps).kept : lines.kept;
    std::string damage;
    if (!lines.unreadable.empty())
      damage = concat(numbers_text(lines.unreadable), " cannot be read and ",
                      lines.unreadable.size() == 1 ? "was" : "were", " dropped");
    else if (saved.bytes > 0 && !untouched)
      damage = concat("differs from what the run had written up to step ", keep_steps,
                      ": lines were changed, or are missing");
    if (!damage.empty())
      log(LogLevel::kWarning, concat(path, ": ", damage, ". The original file: ", keep_damaged(path, text)));
    else if (lines.cut)
      log(LogLevel::kInfo,
          concat(path, ": the last line is incomplete and is dropped: the run was killed while writing it"));
    write_file_atomically(path, kept);
    written_ = sum_of(kept);
  } else if (saved.bytes > 0) {
    log(LogLevel::kWarning, concat(path, " is missing: a new one begins after step ", keep_steps));
  }
  file_ = file_system().open_append(path);
  sinks_ = metrics_sinks(folder, keep_steps, kept, outputs);
}

void MetricsLog::line(const Json& object) {
  const std::string full = object.dump() + '\n';
  file_->write(full.data(), full.size());
  written_.bytes += static_cast<int64_t>(full.size());
  written_.crc32c = crc32c(full.data(), full.size(), written_.crc32c);
  for (const auto& sink : sinks_) sink->line(object);
}

void MetricsLog::write(const TrainEvent& e) {
  Json j{{"event", "train"},
         {"step", e.step},
         {"epoch", e.epoch},
         {"loss", number(e.loss)},
         {"accuracy", percent(e.accuracy)},
         {"lr", number(e.lr)},
         {"samples_per_s", number(e.samples_per_s)}};
  if (e.gradient_norm >= 0) j["gradient_norm"] = number(e.gradient_norm);
  if (e.tokens_per_s > 0) j["tokens_per_s"] = number(e.tokens_per_s);
  if (e.gmacs_per_s > 0) j["gmacs_per_s"] = number(e.gmacs_per_s);
  if (e.mfu >= 0) j["mfu"] = number(e.mfu);
  if (e.slowest_rank >= 0) j["slowest_rank"] = e.slowest_rank;
  if (e.slowest_rank >= 0) j["wait"] = number(e.wait);
  if (e.skipped_windows > 0) j["skipped_windows"] = e.skipped_windows;
  line(j);
}

void MetricsLog::write(const EvalEvent& e) {
  Json j{{"event", "eval"}, {"split", e.split},       {"epoch", e.epoch},
         {"step", e.step},  {"loss", number(e.loss)}, {"accuracy", percent(e.accuracy)}};
  for (const auto& [name, value] : e.metrics)
    if (!j.contains(name)) j[name] = number(value);
  if (e.final) j["final"] = true;
  if (e.average) {
    Json& average = j["average"] = {{"loss", number(e.average->loss)}, {"accuracy", percent(e.average->accuracy)}};
    for (const auto& [name, value] : e.average->metrics)
      if (!average.contains(name)) average[name] = number(value);
  }
  line(j);
}

void MetricsLog::write(const QuantEvent& e) { line(Json::parse(to_json(e))); }

void MetricsLog::flush() { file_->flush_to_disk(); }

void write_summary(const std::string& folder, const TrainOutcome& outcome, const std::string& status,
                   const std::string& error) {
  const MemoryAccount peak = memory_at_peak();
  Json memory = Json::object();
  for (int i = 0; i < kMemoryKinds; ++i)
    memory[std::string(memory_kind_name(static_cast<MemoryKind>(i)))] = peak.bytes[static_cast<size_t>(i)];
  memory["total_peak"] = peak.total;
  Json summary{{"status", status},
               {"best_accuracy", percent(outcome.counters.best_accuracy)},
               {"last_accuracy", percent(outcome.counters.last_accuracy)},
               {"metric", outcome.metric},
               {"best_value", value_of_metric(outcome, outcome.counters.best_accuracy, outcome.counters.best_value)},
               {"last_value", value_of_metric(outcome, outcome.counters.last_accuracy, outcome.counters.last_value)},
               {"best_epoch", outcome.counters.best_epoch},
               {"best_step", outcome.counters.best_step > 0 ? Json(outcome.counters.best_step) : Json(nullptr)},
               {"selected_on", outcome.selected_on.empty() ? Json(nullptr) : Json(outcome.selected_on)},
               {"ended_by", outcome.ended_by},
               {"ended", outcome.ended},
               {"epochs", outcome.counters.epoch},
               {"steps", outcome.optimizer_steps},
               {"skipped_windows", outcome.skipped_windows},
               {"seconds", number(outcome.seconds)},
               {"state_hash", outcome.state_hash},
               {"memory", memory}};
  if (outcome.phase) {
    summary["phase"] = *outcome.phase;
    summary["form_since"] = *outcome.form_since;
  }
  if (outcome.evaluation) {
    summary["evaluated"] = {
        {"split", outcome.evaluated}, {"samples", outcome.evaluation->samples}, {"step", outcome.evaluated_step}};
    Json& metrics = summary["metrics"] = Json::object();
    for (const auto& [name, value] : outcome.evaluation->metrics)
      metrics[name] = std::isfinite(value) ? Json(value) : Json(nullptr);  // all digits, as best_value
  }
  if (!error.empty()) summary["error"] = error;
  write_file_atomically(folder + "/summary.json", summary.dump(2) + '\n');
}

}  // namespace bitgrad
