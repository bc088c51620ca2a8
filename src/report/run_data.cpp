#include "report/run_data.h"

#include <algorithm>
#include <cmath>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"
#include "bitgrad/checkpoint/run_folder.h"

namespace bitgrad::html {
namespace {

std::string text_of_file(const std::string& path) {
  if (!file_system().exists(path)) return {};
  const std::vector<uint8_t> bytes = file_system().read(path);
  return {bytes.begin(), bytes.end()};
}

Json json_of_file(const std::string& path) {
  const std::string text = text_of_file(path);
  if (text.empty()) return nullptr;
  try {
    return Json::parse(text);
  } catch (const JsonError& e) {
    fail_with(ErrorCode::kData, "report", path, " is damaged: ", printable(e.what()),
              ". The file can be removed: its part of the report is then empty");
  }
}

bool is_counter(const std::string& key) { return key == "step" || key == "epoch"; }

void add_numbers(const Json& line, double step, SeriesByName& to) {
  for (const auto& [key, value] : line.members())
    if (value.is_number() && !is_counter(key)) to[key].add(step, value.get<double>());
}

void add_quant(const Json& line, double step, RunData& run) {
  const std::string layer = line.value("layer", ""), part = line.value("part", "");
  auto at = std::find_if(run.quantization.begin(), run.quantization.end(),
                         [&](const QuantPart& q) { return q.layer == layer && q.part == part; });
  if (at == run.quantization.end()) at = run.quantization.insert(at, QuantPart{layer, part, {}, {}});
  add_numbers(line, step, at->values);
  at->last = line;
}

void add_line(const Json& line, RunData& run) {
  const std::string& event = line["event"].text();
  const auto step = line["step"].get<double>();
  if (event == "train") {
    add_numbers(line, step, run.train);
  } else if (event == "eval") {
    add_numbers(line, step, run.evaluations[line.value("split", "test")]);
    run.epochs[step] = line.value("epoch", int64_t{0});
  } else if (event == "quant") {
    add_quant(line, step, run);
  }
}

void read_metrics(const std::string& path, RunData& run) {
  const std::string text = text_of_file(path);
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    run.torn = end == std::string::npos;
    if (run.torn) return;
    ++number;
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    try {
      add_line(Json::parse(line), run);
    } catch (const JsonError&) {
      constexpr size_t kShown = 40;
      fail_with(ErrorCode::kData, "report", path, ':', number, ": got '", printable(line.substr(0, kShown)),
                line.size() > kShown ? "...'" : "'",
                ", expected a JSON object with event and step. Remove the line, or resume the run, which drops it");
    }
    begin = end + 1;
  }
}

// The last parts of the path: runs/mnist/0001 -> mnist/0001.
std::string short_name(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  const size_t last = folder.rfind('/');
  if (last == std::string::npos || last == 0) return folder;
  std::string tail = folder.substr(last + 1);
  const bool number = !tail.empty() && tail.find_first_not_of("0123456789") == std::string::npos;
  if (!number) return tail;
  const size_t before = folder.rfind('/', last - 1);
  return before == std::string::npos ? folder : folder.substr(before + 1);
}

}  // namespace

RunData read_run(const std::string& folder) {
  RunData run;
  run.folder = folder;
  run.name = printable(short_name(folder));
  const std::string metrics = folder + "/metrics.jsonl";
  if (!file_system().exists(metrics))
    fail_with(ErrorCode::kData, "report", "'", folder, "' has no metrics.jsonl: it is not a run folder");
  read_metrics(metrics, run);
  run.summary = json_of_file(folder + "/summary.json");
  run.record = json_of_file(folder + "/run.json");
  run.evaluation = json_of_file(folder + "/evaluation.json");
  run.config_text = text_of_file(folder + "/config.yaml");
  try {
    run.config = run_folder_config(folder);
  } catch (const Error& e) {
    const std::string why = printable_lines(e.what());
    run.why_no_config = why.substr(0, why.find('\n'));
  }
  return run;
}

std::string best_split(const RunData& run) {
  if (run.summary.is_object() && run.summary.contains("selected_on") && run.summary["selected_on"].is_string())
    return run.summary["selected_on"].text();
  if (run.evaluations.contains("valid")) return "valid";
  if (run.evaluation.is_object() && run.evaluation.contains("split")) return run.evaluation["split"].text();
  return run.evaluations.empty() ? "" : run.evaluations.begin()->first;
}

std::string best_metric(const RunData& run) {
  std::string named = run.summary.is_object() ? run.summary.value("metric", "") : "";
  if (!named.empty()) return named;
  const auto at = run.evaluations.find(best_split(run));
  return at != run.evaluations.end() && at->second.contains("accuracy") ? "accuracy" : "loss";
}

}  // namespace bitgrad::html
