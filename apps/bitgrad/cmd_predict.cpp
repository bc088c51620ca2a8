// bitgrad predict RUN_OR_MODEL INPUT... [--top K] [--json | --csv] [--format F] [--pixels] [--task T] [--classes FILE]:
// predictions for samples in files, in their order.
#include <iostream>
#include <optional>

#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/picture.h"
#include "bitgrad/infer/predictor.h"
#include "bitgrad/kernels/gemm_costs.h"
#include "command.h"
#include "open_file.h"
#include "samples_input.h"
#include "table.h"

namespace bitgrad::cli {
namespace {

constexpr std::string_view kPredict = "predict";

enum class Task { kOfRun, kClasses, kLabels, kValues };
struct PredictOptions {
  std::vector<std::string> inputs;
  std::string classes;
  SampleInput input;
  Task task = Task::kOfRun;
  int64_t top = 1;
  ModelChoice choice;
  bool json = false, csv = false;
};

std::optional<PredictionTask> task_of(Task task) {
  switch (task) {
    case Task::kOfRun:
      return std::nullopt;
    case Task::kClasses:
      return PredictionTask::kClasses;
    case Task::kLabels:
      return PredictionTask::kLabels;
    case Task::kValues:
      return PredictionTask::kValues;
  }
  return std::nullopt;
}

// The lines of NAME.classes.txt.
std::vector<std::string> names_in(const std::string& path, int64_t classes) {
  std::vector<std::string> names = read_class_names(path);
  if (std::ssize(names) != classes)
    fail_with(ErrorCode::kData, kPredict, path, ": got ", names.size(), " names, the model has ", classes, " classes");
  return names;
}

// The prediction of one row of outputs: a sample, or one of its positions.
struct Row {
  std::vector<Ranked> top;
  std::vector<float> values;
};

class Predictions {
 public:
  Predictions(const PredictOptions& o, Predictor& model)
      : o_(o), model_(model), names_(model.output().names), classes_(model.output().sample.cols()) {
    if (!o.classes.empty()) names_ = names_in(o.classes, classes_);
  }

  // Adds the outputs of the samples of one input.
  void add(const std::string& input, const Tensor& outputs) {
    const int64_t rows = outputs.rows() / std::max<int64_t>(outputs.shape()[0], 1);
    for (int64_t s = 0; s < outputs.shape()[0]; ++s)
      if (o_.json)
        write_json(outputs, s, rows);
      else
        for (int64_t r = 0; r < rows; ++r)
          write_line(input, s, rows > 1 ? std::optional(r) : std::nullopt, outputs, s * rows + r);
  }
  void begin() {
    if (o_.json)
      std::cout << R"({"task":")" << prediction_task_name(task()) << R"(","scores":)" << score_kind()
                << R"(,"predictions":[)";
    std::vector<std::string> head{"input", "sample"};
    if (model_.output().sample.rank() > 1) head.push_back("position");
    if (task() == PredictionTask::kValues) {
      for (int64_t i = 0; i < classes_; ++i)
        head.push_back(!names_.empty() ? name(i) : classes_ == 1 ? "value" : concat("value_", i));
    } else {
      if (task() == PredictionTask::kLabels) head.push_back("labels");
      for (int64_t k = 1; k <= std::min(o_.top, classes_); ++k) {
        const std::string end = k == 1 ? "" : concat('_', k);
        head.push_back("class" + end);
        if (!names_.empty()) head.push_back("name" + end);
        head.push_back((model_.output().probabilities ? "probability" : "score") + end);
      }
    }
    lines_.push_back(std::move(head));
    if (o_.csv) flush_csv();
  }
  void end() {
    if (o_.json) std::cout << "]}\n";
    if (!o_.json && !o_.csv) print_table(std::cout, lines_);
  }

 private:
  PredictionTask task() const { return model_.output().task; }
  std::string score_kind() const {
    if (task() == PredictionTask::kValues) return "null";
    return model_.output().probabilities ? R"("probability")" : R"("score")";
  }
  std::span<const float> row_of(const Tensor& outputs, int64_t row) const {
    return {outputs.as<float>() + row * classes_, static_cast<size_t>(classes_)};
  }
  std::vector<int64_t> labels_of(std::span<const float> outputs) const {
    std::vector<int64_t> labels;
    for (size_t i = 0; i < outputs.size(); ++i)
      if (outputs[i] >= 0.0f) labels.push_back(static_cast<int64_t>(i));
    return labels;
  }
  std::string name(int64_t index) const { return names_[static_cast<size_t>(index)]; }

  Json json_row(std::span<const float> outputs) const {
    if (task() == PredictionTask::kValues) return Json(std::vector<double>(outputs.begin(), outputs.end()));
    Json top = Json::array();
    for (const Ranked& r : model_.top(outputs, o_.top)) {
      Json entry = Json::array();
      entry.push_back(r.index);
      entry.push_back(r.score);
      if (!names_.empty()) entry.push_back(name(r.index));
      top.push_back(std::move(entry));
    }
    return top;
  }
  void write_json(const Tensor& outputs, int64_t sample, int64_t rows) {
    const bool positions = model_.output().sample.rank() > 1;
    Json first = Json::array(), second = Json::array();
    for (int64_t r = 0; r < rows; ++r) {
      const std::span<const float> row = row_of(outputs, sample * rows + r);
      if (task() == PredictionTask::kClasses) first.push_back(model_.top(row, 1)[0].index);
      if (task() == PredictionTask::kLabels) first.push_back(labels_of(row));
      second.push_back(json_row(row));
    }
    Json j = Json::object();
    const char* const key = task() == PredictionTask::kClasses ? "class" : "labels";
    if (task() != PredictionTask::kValues) j[key] = positions ? first : std::as_const(first).at(size_t{0});
    j[task() == PredictionTask::kValues ? "values" : "top"] = positions ? second : std::as_const(second).at(size_t{0});
    std::cout << (written_++ > 0 ? "," : "") << j.dump();
  }
  std::string number(double x) const { return o_.csv ? Json(x).dump() : short_number(x); }
  void write_line(const std::string& input, int64_t sample, std::optional<int64_t> position, const Tensor& outputs,
                  int64_t row) {
    std::vector<std::string> line{input, concat(sample)};
    if (model_.output().sample.rank() > 1) line.push_back(concat(position.value_or(0)));
    const std::span<const float> y = row_of(outputs, row);
    if (task() == PredictionTask::kValues) {
      for (const float value : y) line.push_back(number(static_cast<double>(value)));
    } else {
      if (task() == PredictionTask::kLabels) {
        std::string labels;
        for (const int64_t label : labels_of(y))
          labels += concat(labels.empty() ? "" : " ", names_.empty() ? concat(label) : name(label));
        line.push_back(labels.empty() ? "-" : labels);
      }
      for (const Ranked& r : model_.top(y, o_.top)) {
        line.push_back(concat(r.index));
        if (!names_.empty()) line.push_back(name(r.index));
        line.push_back(number(r.score));
      }
    }
    lines_.push_back(std::move(line));
    if (o_.csv) flush_csv();
  }
  // RFC 4180: a field with a comma, quote or line break is quoted, and its quotes are doubled.
  static std::string field(const std::string& text) {
    if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
    std::string out = "\"";
    for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
    return out + '"';
  }
  void flush_csv() {
    for (const std::vector<std::string>& line : lines_)
      for (size_t i = 0; i < line.size(); ++i) std::cout << field(line[i]) << (i + 1 < line.size() ? "," : "\n");
    lines_.clear();
  }

  const PredictOptions& o_;
  Predictor& model_;
  std::vector<std::string> names_;
  const int64_t classes_;
  std::vector<std::vector<std::string>> lines_;
  int64_t written_ = 0;
};

int run_predict(const PredictOptions& o) {
  kernels::load_gemm_costs(kernels::gemm_costs_path());
  OpenedFile file = open_target(o.choice);
  apply_run_settings(file.config);
  Predictor model(std::move(file), task_of(o.task));
  // All inputs are read before anything is printed, so that a bad one leaves no partial output.
  std::vector<Samples> inputs;
  std::vector<std::string> notes;
  for (const std::string& path : o.inputs) inputs.push_back(read_samples(path, o.input, model, notes));
  std::vector<Tensor> outputs;
  for (const Samples& samples : inputs) outputs.push_back(model.predict(samples.view()));
  for (const std::string& note : notes) std::cerr << "note: " << printable(note) << '\n';
  Predictions predictions(o, model);
  predictions.begin();
  for (size_t i = 0; i < inputs.size(); ++i) predictions.add(inputs[i].name, outputs[i]);
  predictions.end();
  return 0;
}

}  // namespace

Run setup_predict(Arguments& args) {
  auto o = std::make_shared<PredictOptions>();
  add_target(args, o->choice);
  args.option("input", o->inputs,
              "files of samples: idx (also .gz), npy, npz (its only array, or images), csv (one sample per line), PNG "
              "or JPEG (one sample); - is standard input")
      .required();
  args.choice("--format", o->input.format,
              {{"idx", SampleFormat::kIdx},
               {"npy", SampleFormat::kNpy},
               {"npz", SampleFormat::kNpz},
               {"csv", SampleFormat::kCsv},
               {"picture", SampleFormat::kPicture}},
              "format of all inputs; default: detected from the content, .csv from the extension");
  args.flag("--pixels", o->input.pixels,
            "csv values are bytes 0 .. 255, to which the model's normalization is applied");
  args.option("--top", o->top, "show the N most likely classes").range<int64_t>(1, int64_t{1} << 30);
  args.choice("--task", o->task, {{"classes", Task::kClasses}, {"labels", Task::kLabels}, {"values", Task::kValues}},
              "meaning of the outputs, for files not written by a run");
  args.option("--classes", o->classes, "text file with one class name per line, such as NAME.classes.txt");
  add_choice_options(args, o->choice);
  const Argument csv = args.flag("--csv", o->csv, "write CSV to standard output");
  args.flag("--json", o->json, "one JSON object on standard output").excludes(csv);
  return [o] { return run_predict(*o); };
}

}  // namespace bitgrad::cli
