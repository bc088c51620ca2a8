// bitgrad predict RUN_OR_MODEL INPUT... [--top K] [--json | --csv] [--format F] [--pixels] [--task T] [--classes FILE]:
// predictions for samples in files, in their order.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <optional>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/picture.h"
#include "bitgrad/data/samples.h"
#include "bitgrad/infer/predictor.h"
#include "command.h"
#include "open_file.h"
#include "table.h"

namespace bitgrad::cli {
namespace {

// ---- samples as input: files of several formats, and standard input

enum class SampleFormat { kByContent, kIdx, kNpy, kNpz, kCsv, kPicture };

struct SampleInput {
  SampleFormat format = SampleFormat::kByContent;
  bool pixels = false;  // CSV values are bytes 0 .. 255
};

constexpr std::string_view kPredict = "predict";
constexpr int64_t kMostBytes = int64_t{1} << 33;  // per input

std::string shown(const std::string& path) { return path == "-" ? "standard input" : path; }

std::vector<uint8_t> bytes_of(const std::string& path) {
  if (path == "-") return read_standard_input(kMostBytes);
  if (file_system().is_directory(path))
    fail_with(ErrorCode::kData, kPredict, path,
              ": got a folder, expected a file of samples (idx, npy, npz, csv, PNG, JPEG)");
  if (!file_system().exists(path)) fail_with(ErrorCode::kData, kPredict, path, ": no such file");
  return read_file(path, kMostBytes);
}

SampleFormat format_of(const std::string& path, const std::vector<uint8_t>& bytes) {
  const auto begins = [&](std::initializer_list<uint8_t> magic) {
    return bytes.size() >= magic.size() && std::equal(magic.begin(), magic.end(), bytes.begin());
  };
  if (begins({0x93, 'N', 'U', 'M', 'P', 'Y'})) return SampleFormat::kNpy;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::optional<FileKind> kind = known_file_kind(text);
  if (kind && kind->name.ends_with("(.npz)")) return SampleFormat::kNpz;
  if (begins({0x89, 'P', 'N', 'G'}) || begins({0xFF, 0xD8, 0xFF})) return SampleFormat::kPicture;
  for (const std::string_view ending : {".csv.gz", ".txt.gz", ".tsv.gz"})
    if (path.ends_with(ending)) return SampleFormat::kCsv;
  if (begins({0x1F, 0x8B}) || begins({0, 0})) return SampleFormat::kIdx;
  for (const std::string_view ending : {".csv", ".txt", ".tsv", ".data"})
    if (path.ends_with(ending)) return SampleFormat::kCsv;
  if (const std::string why = why_no_text(text); !why.empty())
    fail_with(ErrorCode::kData, kPredict, path, ": ", why, ". Expected idx, npy, csv, PNG or JPEG");
  fail_with(
      ErrorCode::kData, kPredict, path,
      ": got bytes of no format that is known by its beginning, and no name that ends in .csv, expected idx, npy, "
      "npz, csv, PNG or JPEG. --format names one");
}

// Converts CSV values to bytes.
Samples as_pixels(const Samples& values) {
  Samples out{values.name, StoredAs::kUint8, values.shape, values.count,
              TrackedBytes(values.count * values.shape.numel(), MemoryKind::kDataset)};
  const auto* const from = reinterpret_cast<const float*>(values.bytes.data());
  for (int64_t i = 0; i < out.bytes.size(); ++i) {
    if (!(from[i] >= 0.0f && from[i] <= 255.0f && from[i] == std::floor(from[i])))
      fail_with(ErrorCode::kData, kPredict, values.name, ": --pixels: sample ", i / values.shape.numel(), ", value ",
                i % values.shape.numel() + 1, ": got ", from[i], ", expected a whole number 0 .. 255");
    out.bytes.data()[i] = static_cast<uint8_t>(from[i]);
  }
  return out;
}

Samples read_csv(const std::string& path, const std::vector<uint8_t>& bytes, bool pixels, const Predictor& model,
                 std::vector<std::string>& notes) {
  require(!pixels || model.table() == nullptr, kPredict, path,
          ": --pixels: the model was trained on a table of text, whose ", "values are not pixels");
  Samples samples = model.read_csv(path, {bytes.begin(), bytes.end()}, &notes);
  return pixels && model.input().dtype != dtypes::int32 ? as_pixels(samples) : std::move(samples);
}

Samples picture_sample(const std::string& path, const Picture& picture) {
  const std::vector<int64_t> dims = picture.channels == 1
                                        ? std::vector<int64_t>{picture.rows, picture.columns}
                                        : std::vector<int64_t>{picture.rows, picture.columns, picture.channels};
  Samples out{path, StoredAs::kUint8, Shape(dims), 1, TrackedBytes(std::ssize(picture.bytes), MemoryKind::kDataset)};
  std::copy(picture.bytes.begin(), picture.bytes.end(), out.bytes.data());
  return out;
}

Samples read_picture(const std::string& path, const std::vector<uint8_t>& bytes, const Shape& sample) {
  Picture picture;
  try {
    picture = decode_picture(bytes);
  } catch (const Error& error) {
    throw Error(concat('[', kPredict, "] ", path, ": ", error.what()), error.code());
  }
  const int64_t pixels = picture.rows * picture.columns;
  if (sample.rank() == 2 || (sample.rank() == 3 && (sample[2] == 1 || sample[2] == 3))) {
    const int64_t channels = sample.rank() == 3 ? sample[2] : 1;
    return picture_sample(path, resized(with_channels(std::move(picture), channels), sample[0], sample[1]));
  }
  const int64_t wanted = sample.numel();
  if (sample.rank() != 1 || (wanted != pixels && wanted != 3 * pixels))
    fail_with(ErrorCode::kData, kPredict, path, ": got a picture of ", picture.rows, " x ", picture.columns,
              " pixels, the model expects ", sample,
              sample.rank() == 1 ? ": as many gray pixels, or three times as many for colors. Resize the picture" : "");
  return picture_sample(path, with_channels(std::move(picture), wanted == pixels ? 1 : 3));
}

// `path`: a file, or "-" for standard input, which needs a format. A picture is one sample. It is resized to the
// model's input if that is [rows, columns] or [rows, columns, 1 or 3]; for a model of vectors it must have as many
// pixels. A csv is read as the model's table (Predictor::read_csv). `notes`: what was guessed or is not read.
Samples read_samples(const std::string& path, const SampleInput& input, const Predictor& predictor,
                     std::vector<std::string>& notes) {
  const Form& model = predictor.input();
  require(path != "-" || input.format != SampleFormat::kByContent, kPredict,
          "standard input needs --format: idx, npy, npz, csv or picture");
  std::vector<uint8_t> bytes = bytes_of(path);
  const std::string name = shown(path);
  const SampleFormat format = input.format == SampleFormat::kByContent ? format_of(name, bytes) : input.format;
  if (format == SampleFormat::kCsv) return read_csv(name, bytes, input.pixels, predictor, notes);
  if (format == SampleFormat::kPicture) return read_picture(name, bytes, model.sample);
  const std::unique_ptr<InputFile> file = memory_file(std::move(bytes));
  const bool ids = model.dtype == dtypes::int32;
  if (format == SampleFormat::kNpy) return read_npy_samples(name, *file, ids);
  return format == SampleFormat::kNpz ? read_npz_samples(name, *file, ids) : read_idx_samples(name, *file);
}

// ---- what is predicted

struct PredictOptions {
  std::vector<std::string> inputs;
  std::string classes;
  SampleInput input;
  std::optional<PredictionTask> task = {};  // none: that of the run
  int64_t top = 1;
  ModelChoice choice;
  bool json = false, csv = false;
};

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
  void flush_csv() {
    for (const std::vector<std::string>& line : lines_)
      for (size_t i = 0; i < line.size(); ++i) std::cout << csv_field(line[i]) << (i + 1 < line.size() ? "," : "\n");
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
  OpenedFile file = open_to_compute(o.choice);
  apply_run_settings(file.config);
  Predictor model(std::move(file), o.task);
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
  args.choice(
      "--task", o->task,
      {{"classes", PredictionTask::kClasses}, {"labels", PredictionTask::kLabels}, {"values", PredictionTask::kValues}},
      "meaning of the outputs, for files not written by a run");
  args.option("--classes", o->classes, "text file with one class name per line, such as NAME.classes.txt");
  add_choice_options(args, o->choice);
  const Argument csv = args.flag("--csv", o->csv, "write CSV to standard output");
  args.flag("--json", o->json, "one JSON object on standard output").excludes(csv);
  return [o] { return run_predict(*o); };
}

}  // namespace bitgrad::cli
