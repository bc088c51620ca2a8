#include "run/metrics_sinks.h"

#include <map>
#include <optional>
#include <utility>

#include "bitgrad/base/error.h"
#include "io/event_file.h"

namespace bitgrad::detail {
namespace {

// Rows of results.csv (docs/report.md): one per evaluation, with values of the last train line before it; or, if the
// run does not evaluate, one per train line.
class CsvRows {
 public:
  explicit CsvRows(MetricsOutputs outputs) : outputs_(std::move(outputs)) {}
  std::string head() const {
    std::string text = "step,epoch,split,loss";
    for (const std::string& name : outputs_.metrics) text += ',' + name;
    return text + ",train_loss,train_accuracy,lr,samples_per_s,tokens_per_s\n";
  }
  // The row completed by a line of metrics.jsonl, if any.
  std::optional<std::string> row(const Json& line) {
    const std::string& event = line["event"].text();
    if (event == "train") train_ = line;
    if (event != (outputs_.evaluates ? "eval" : "train")) return std::nullopt;
    const Json evaluation = outputs_.evaluates ? line : Json::object();
    std::string text = concat(cell(line, "step"), ',', cell(line, "epoch"), ',', evaluation.value("split", ""), ',',
                              cell(evaluation, "loss"));
    for (const std::string& name : outputs_.metrics) text += ',' + cell(evaluation, name);
    for (const char* name : {"loss", "accuracy", "lr", "samples_per_s", "tokens_per_s"})
      text += ',' + cell(train_, name);
    return text + '\n';
  }

 private:
  static std::string cell(const Json& line, const std::string& name) {
    return line.contains(name) && line[name].is_number() ? line[name].dump() : "";
  }
  const MetricsOutputs outputs_;
  Json train_ = Json::object();
};

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

class CsvFile : public MetricsSink {
 public:
  CsvFile(const std::string& folder, std::string_view kept, const MetricsOutputs& outputs) : rows_(outputs) {
    const std::string path = folder + "/results.csv";
    std::string text = rows_.head();
    for_each_line(kept, [&](const Json& line) { text += rows_.row(line).value_or(""); });
    write_file_atomically(path, text);
    file_ = file_system().open_append(path);
  }
  void line(const Json& object) override {
    if (const auto row = rows_.row(object)) file_->write(row->data(), row->size());
  }

 private:
  CsvRows rows_;
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
      const bool speed = name.ends_with("_per_s") || name == "mfu";
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

}  // namespace

std::vector<std::unique_ptr<MetricsSink>> metrics_sinks(const std::string& folder, int64_t keep_steps,
                                                        std::string_view kept, const MetricsOutputs& outputs) {
  std::vector<std::unique_ptr<MetricsSink>> sinks;
  if (outputs.csv) sinks.push_back(std::make_unique<CsvFile>(folder, kept, outputs));
  if (outputs.tensorboard) sinks.push_back(std::make_unique<Events>(folder, keep_steps, kept));
  return sinks;
}

}  // namespace bitgrad::detail
