// Predictor: runs a trained model. Opened from a run folder or a file; needs no configuration, data set or optimizer.
//
//   const auto model = open_model("runs/mnist/0001");
//   Tensor scores = model->predict(x);                       // x [n, 784] fp32 -> [n, 10] fp32
//   for (const Ranked& r : model->top(scores, 0, 3)) ...     // class and probability
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/data/samples.h"
#include "bitgrad/data/table.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/run/build.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// Meaning of a model's outputs, determined by its training loss.
enum class PredictionTask : uint8_t {
  kClasses,  // one class: a score per class
  kLabels,   // several independent labels (sigmoid_cross_entropy)
  kValues,   // the values themselves
};
std::string_view prediction_task_name(PredictionTask task);  // "classes", "labels", "values"

struct OutputForm {
  PredictionTask task = PredictionTask::kClasses;
  Shape sample = {};  // output shape per sample: [classes], [positions, classes] or [values]
  // Scores are logits whose softmax (kClasses) or sigmoid (kLabels) is a probability; false: margins, e.g. of a hinge
  // loss.
  bool probabilities = false;
  std::vector<std::string> names = {};  // of classes or labels; empty: unknown
};

// Index of a class, label or value along the last axis, and its score.
struct Ranked {
  int64_t index = 0;
  double score = 0;
};

// Thread-safe: concurrent calls run one after another. Runs on the device that was current when the model was opened.
class Predictor {
 public:
  // `task` defaults to that of the loss in the file's configuration. For a file that no run wrote it defaults to
  // values, or to classes if a model of ids has a score for each id.
  explicit Predictor(OpenedFile file, std::optional<PredictionTask> task = {});
  ~Predictor();
  Predictor(const Predictor&) = delete;
  Predictor& operator=(const Predictor&) = delete;

  const Form& input() const { return input_; }  // sample: shape of one sample; dtype fp32, or int32 for ids
  const OutputForm& output() const { return output_; }
  const OpenedFile& file() const { return file_; }
  // How the model reads the columns of a table of text (data/table.h); nullptr if it was not trained on one.
  const TablePlan* table() const { return table_.get(); }

  // x [n, sample...] on the CPU, in the form the model takes: fp32 (already normalized) or int32 ids. Samples of
  // another shape with the same element count are viewed in the model's shape. Returns [n, output().sample...] fp32 on
  // the CPU. Samples run in the batch size of the run's evaluation, so the outputs are bitwise those of `bitgrad eval`.
  // Throws Error for another dtype or shape and for ids out of range, Error(kNonFinite) for values that are not finite.
  Tensor predict(const Tensor& x);
  // The same for samples as stored in data files: bytes and fp32 values are transformed by the run's data.affine or
  // data.normalize, as in the data set of the run; ids are used unchanged.
  Tensor predict(const SampleView& samples);

  // The same for the rows of a CSV file, plain or gzip, as the model was trained on one: by the names of its columns,
  // with categories and missing values. `notes`: columns that are not read. Models of other data take lines of numbers.
  // Throws Error(kData) that names line and column.
  Tensor predict_csv(const std::string& path, std::vector<std::string>* notes = nullptr);
  Samples read_csv(const std::string& name, std::string text, std::vector<std::string>* notes = nullptr) const;

  // Writes the inference model (save_model). Throws Error if `path` is the file that the model was opened from.
  void save(const std::string& path);
  // Exports to another program's format (export/export.h). `format` is a name of export_targets(); empty: chosen by the
  // ending of `path`.
  ExportReport export_to(const std::string& path, const std::string& format = {});

  // Runs `use` while no other call uses the model: for a Generator, which reads the learner's planned model itself.
  void with_learner(const std::function<void(Learner&)>& use);

  // Scores of one row of outputs: softmax or sigmoid, computed in double, if output().probabilities, else the outputs
  // unchanged.
  std::vector<double> scores(std::span<const float> outputs) const;
  // The k largest in descending order; ties go to the lower index. k is clamped to the number of outputs.
  std::vector<Ranked> top(std::span<const float> outputs, int64_t k) const;
  std::vector<Ranked> top(const Tensor& outputs, int64_t row, int64_t k) const;  // one row of [.., classes]

 private:
  void check(const Shape& sample, bool ids, std::string_view name) const;
  void check_ids(const int32_t* ids, int64_t count, std::string_view name) const;
  void run_batch(const Tensor& x, float* out);

  OpenedFile file_;
  std::unique_ptr<Learner> learner_;
  Form input_;
  OutputForm output_;
  int64_t batch_ = 1;
  SampleValues values_;
  std::shared_ptr<const TablePlan> table_;
  std::mutex mutex_;
  std::atomic<bool> warned_ = false;  // of bytes that may be a table
};

// Opens a run folder (the best checkpoint if data.valid chose it, else the last), a checkpoint or a model file;
// file().path names the file. Throws Error(kData) for damaged files and for files of other programs; the message says
// how to import those.
std::unique_ptr<Predictor> open_model(const std::string& path, std::optional<PredictionTask> task = {},
                                      CheckpointChoice choice = CheckpointChoice::kChosen);

}  // namespace bitgrad
