#include "bitgrad/train/metrics.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "bitgrad/base/memory.h"

namespace bitgrad {
namespace {

using Json = nlohmann::ordered_json;

// Numbers short enough to read; NaN and Inf have no JSON form.
Json number(double x) {
  if (!std::isfinite(x)) return nullptr;
  return std::stod(concat(static_cast<float>(x)));
}

// As it is: every reader gets the number that `eval --json` prints.
Json percent(double x) { return x < 0 || !std::isfinite(x) ? Json(nullptr) : Json(x); }

std::string kept_lines(const std::vector<uint8_t>& bytes, int64_t keep_steps) {
  std::string kept, line;
  for (const uint8_t byte : bytes) {
    line.push_back(static_cast<char>(byte));
    if (byte != '\n') continue;
    const Json j = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (j.is_object() && j.contains("step") && j["step"].is_number_integer() && j["step"].get<int64_t>() <= keep_steps)
      kept += line;
    line.clear();
  }
  return kept;
}

}  // namespace

MetricsLog::MetricsLog(const std::string& folder, int64_t keep_steps) {
  const std::string path = folder + "/metrics.jsonl";
  if (file_system().exists(path)) write_file_atomically(path, kept_lines(file_system().read(path), keep_steps));
  file_ = file_system().open_append(path);
}

void MetricsLog::line(const std::string& text) {
  const std::string whole = text + '\n';
  file_->write(whole.data(), whole.size());
}

void MetricsLog::write(const TrainEvent& e) {
  line(Json{{"event", "train"},
            {"step", e.step},
            {"epoch", e.epoch},
            {"loss", number(e.loss)},
            {"accuracy", percent(e.accuracy)},
            {"lr", number(e.lr)},
            {"samples_per_s", number(e.samples_per_s)}}
           .dump());
}

void MetricsLog::write(const EvalEvent& e) {
  line(Json{{"event", "eval"},
            {"split", e.split},
            {"epoch", e.epoch},
            {"step", e.step},
            {"loss", number(e.loss)},
            {"accuracy", percent(e.accuracy)}}
           .dump());
}

void MetricsLog::write(const QuantEvent& e) { line(to_json(e)); }

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
               {"best_epoch", outcome.counters.best_epoch},
               {"epochs", outcome.counters.epoch},
               {"steps", outcome.optimizer_steps},
               {"seconds", number(outcome.seconds)},
               {"state_hash", outcome.state_hash},
               {"memory", memory}};
  if (!error.empty()) summary["error"] = error;
  write_file_atomically(folder + "/summary.json", summary.dump(2) + '\n');
}

}  // namespace bitgrad
