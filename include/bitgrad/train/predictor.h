// Predictor: a trained model that predicts. It is opened from a run folder or a file, and needs no configuration, data
// set or optimizer.
//
//   const auto model = open_model("runs/mnist/0001");
//   Tensor scores = model->predict(x);                       // x [n, 784] fp32 -> [n, 10] fp32
//   for (const Ranked& r : model->top(scores, 0, 3)) ...     // class and probability
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/data/samples.h"
#include "bitgrad/tensor/tensor.h"
#include "bitgrad/train/interop.h"
#include "bitgrad/train/opened_file.h"

namespace bitgrad {

// What the outputs of a model say, by the loss that it was trained with.
enum class PredictionTask : uint8_t {
  kClasses,  // one class: a score each
  kLabels,   // several labels, each by itself (sigmoid_cross_entropy)
  kValues,   // values themselves
};
std::string_view prediction_task_name(PredictionTask task);  // classes, labels, values

struct OutputForm {
  PredictionTask task = PredictionTask::kClasses;
  Shape sample = {};  // of the outputs of one sample: [classes], [positions, classes], [values]
  // Scores are logits whose softmax (kClasses) or sigmoid (kLabels) is a probability; false: scores of a margin.
  bool probabilities = false;
  std::vector<std::string> names = {};  // of classes or labels; empty: not known
};

// A class, label or value by its index along the last axis, with its score.
struct Ranked {
  int64_t index = 0;
  double score = 0;
};

// Calls may come from several threads at once; they run one after the other. On the device that was current when the
// model was opened.
class Predictor {
 public:
  // task: empty: by the loss of the file's configuration; a file that no run wrote says nothing of it, so its outputs
  // are values, or classes where a model of ids gives a score for each.
  explicit Predictor(OpenedFile file, std::optional<PredictionTask> task = {});
  ~Predictor();
  Predictor(const Predictor&) = delete;
  Predictor& operator=(const Predictor&) = delete;

  const Form& input() const { return input_; }  // sample: shape of one; dtype fp32, or int32 with `ids`
  const OutputForm& output() const { return output_; }
  const OpenedFile& file() const { return file_; }

  // x [n, sample...] as the model takes it: fp32 (already normalized), or int32 ids; another shape with as many
  // elements in a sample is viewed as the model's. On the CPU, as the outputs [n, output().sample...] fp32. Samples run
  // in batches of those of the run's evaluation, so outputs are the bits of `bitgrad eval`. Error for another dtype or
  // shape and for ids that the model does not have, Error(kNonFinite) for values that are not finite.
  Tensor predict(const Tensor& x);
  // The same for samples as data files hold them: bytes become what data.affine or data.normalize of the run make of
  // them, and so do fp32 values, as in the data set of the run; ids stay.
  Tensor predict(const SampleView& samples);

  // The model alone, without what trains it (save_model). Error for the file that it was opened from.
  void save(const std::string& path);
  // In a file of another program (train/export.h); format: of export_targets(), empty: by the end of the path.
  ExportReport export_to(const std::string& path, const std::string& format = {});

  // Scores along the last axis: softmax or sigmoid in double, or as they are.
  std::vector<double> scores(std::span<const float> outputs) const;
  // The k largest, largest first; of equal ones the lower index first. k is at most their number.
  std::vector<Ranked> top(std::span<const float> outputs, int64_t k) const;
  std::vector<Ranked> top(const Tensor& outputs, int64_t row, int64_t k) const;  // of one row [.., classes]

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
  std::mutex mutex_;
};

// Of a run folder (its last checkpoint), a checkpoint or a model file. Throws Error(kData) for files that are damaged
// or of another program, and says what opens those.
std::unique_ptr<Predictor> open_model(const std::string& path, std::optional<PredictionTask> task = {});

}  // namespace bitgrad
