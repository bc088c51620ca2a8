#include "bitgrad/infer/predictor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "bitgrad/base/file.h"
#include "bitgrad/base/log.h"
#include "bitgrad/checkpoint/run_folder.h"
#include "bitgrad/export/export.h"
#include "bitgrad/task/loss.h"

namespace bitgrad {
namespace {

constexpr std::string_view kPredict = "predict";

SampleValues values_of(const RunConfig& config) { return SampleValues(config.data.affine, config.data.normalize); }

PredictionTask task_of(const OpenedFile& file, const Form& input, const Shape& output) {
  if (!file.of_run)
    return input.ids > 0 && output.cols() >= input.ids ? PredictionTask::kClasses : PredictionTask::kValues;
  if (loss_takes_classes(file.config.loss)) return PredictionTask::kClasses;
  return file.config.loss == "sigmoid_cross_entropy" ? PredictionTask::kLabels : PredictionTask::kValues;
}

// Rejects files of other programs, by file name, and says how to import them.
void refuse_foreign(const std::string& path) {
  for (const std::string_view ending : {".gguf", ".onnx"})
    if (path.ends_with(ending))
      fail_with(ErrorCode::kData, "checkpoint", path,
                ": is a file of another program, expected a run folder, checkpoint or model file of bitgrad. bitgrad "
                "import makes a model file of GGUF files, safetensors and folders of Hugging Face");
}

}  // namespace

std::string_view prediction_task_name(PredictionTask task) {
  static constexpr std::string_view kNames[] = {"classes", "labels", "values"};
  return kNames[static_cast<size_t>(task)];
}

Predictor::Predictor(OpenedFile file, std::optional<PredictionTask> task)
    : file_(std::move(file)),
      learner_(load_file(file_, nullptr)),
      values_(values_of(file_.config)),
      table_(table_of(file_.header, file_.path)) {
  file_.tensors.reset();  // the values are loaded; a file that a run replaces need not stay
  if (!learner_->converted()) learner_->convert();
  input_ = *learner_->input();
  const std::optional<Form>& out = learner_->model().output_form();
  ensure(out.has_value(), kPredict, file_.path, ": its model was not planned");
  output_.sample = out->sample;
  output_.task = task.value_or(task_of(file_, input_, output_.sample));
  const bool softmax = file_.of_run ? file_.config.loss == "softmax_cross_entropy" : input_.ids > 0;
  output_.probabilities =
      output_.task == PredictionTask::kLabels || (output_.task == PredictionTask::kClasses && softmax);
  if (std::ssize(file_.config.data.class_names) == output_.sample.cols()) output_.names = file_.config.data.class_names;
  batch_ = std::max<int64_t>(file_.config.train.eval.batch, 1);
  if (table_ != nullptr && table_->features() != input_.sample.numel())
    fail_with(ErrorCode::kData, "checkpoint", file_.path, ": the record of its table has ", table_->features(),
              " features, its model expects ", input_.sample);
}
Predictor::~Predictor() = default;

void Predictor::check(const Shape& sample, bool ids, std::string_view name) const {
  const bool takes_ids = input_.dtype == dtypes::int32;
  require(ids == takes_ids, kPredict, name, ": got ", ids ? "integers" : "values", ", the model expects ",
          takes_ids ? "ids (integers)" : "values: bytes (uint8) or fp32");
  require(sample.numel() == input_.sample.numel(), kPredict, name, ": got samples of ", sample, ", the model expects ",
          input_.sample, ". The first axis is that of the samples.");
}

void Predictor::check_ids(const int32_t* ids, int64_t count, std::string_view name) const {
  if (input_.ids == 0) return;
  const int64_t each = std::max<int64_t>(input_.sample.numel(), 1);
  for (int64_t i = 0; i < count; ++i)
    require(ids[i] >= 0 && ids[i] < input_.ids, kPredict, name, ": sample ", i / each, ", value ", i % each,
            ": got id ", ids[i], ", the model has ids 0 .. ", input_.ids - 1);
}

// x: one checked batch on the CPU.
void Predictor::run_batch(const Tensor& x, float* out) {
  const std::lock_guard lock(mutex_);
  const DeviceGuard guard(learner_->device());
  const Tensor here = learner_->device().is_cpu() ? x : x.to_device(learner_->device(), MemoryKind::kBatch);
  const Tensor y = learner_->predict(here).on_host();
  const int64_t expected = x.shape()[0] * output_.sample.numel();
  ensure(y.numel() == expected, kPredict, "got ", y, " of the model, expected ", expected, " outputs");
  if (y.dtype() == dtypes::fp32 && y.contiguous()) {
    std::memcpy(out, y.data(), static_cast<size_t>(expected) * sizeof(float));
  } else {
    const std::vector<float> values = y.to_vector();
    std::copy(values.begin(), values.end(), out);
  }
}

namespace {

Tensor outputs_for(int64_t count, const Shape& sample) {
  std::vector<int64_t> dims{count};
  dims.insert(dims.end(), sample.dims().begin(), sample.dims().end());
  return Tensor::empty(Shape(std::move(dims)), dtypes::fp32, MemoryKind::kActivation, Device::cpu());
}

}  // namespace

Tensor Predictor::predict(const Tensor& x) {
  require(x.shape().rank() >= 1 && x.device().is_cpu() && x.contiguous() && !x.quant(), kPredict, "got ", x.describe(),
          ", expected values [n, sample...] on the CPU");
  require(x.dtype() == dtypes::fp32 || x.dtype() == dtypes::int32, kPredict, "got ", x, ", the model expects ",
          input_.dtype);
  const std::vector<int64_t>& dims = x.shape().dims();
  const Shape sample(std::vector<int64_t>(dims.begin() + 1, dims.end()));
  const bool ids = x.dtype() == dtypes::int32;
  check(sample, ids, "x");
  if (ids) check_ids(x.as<int32_t>(), x.numel(), "x");
  const int64_t n = dims[0], each = sample.numel();
  Tensor out = outputs_for(n, output_.sample);
  const Tensor rows = x.reshape({n, each});
  for (int64_t first = 0; first < n; first += batch_) {
    const int64_t end = std::min(n, first + batch_);
    run_batch(rows.row_slice(first, end), out.as<float>() + first * output_.sample.numel());
  }
  return out;
}

Tensor Predictor::predict(const SampleView& s) {
  const bool takes_ids = input_.dtype == dtypes::int32;
  check(s.shape, s.stored == StoredAs::kUint8 ? takes_ids : s.stored != StoredAs::kFloat, s.name);
  const int64_t each = s.shape.numel();
  require(takes_ids || table_ == nullptr || s.stored == StoredAs::kFloat, kPredict, s.name,
          ": got bytes (uint8), the model reads the numbers of a table. Pass fp32 values, or its CSV file");
  if (const std::string warning = takes_ids ? std::string() : bytes_warning(s);
      !warning.empty() && !warned_.exchange(true))
    log(LogLevel::kWarning, warning);
  Tensor out = outputs_for(s.count, output_.sample);
  for (int64_t first = 0; first < s.count; first += batch_) {
    const int64_t rows = std::min(s.count - first, batch_);
    const Tensor x = Tensor::empty({rows, each}, input_.dtype, MemoryKind::kBatch, Device::cpu());
    if (takes_ids) {
      write_ids(s, first, rows, x.as<int32_t>());
      check_ids(x.as<int32_t>(), rows * each, s.name);
    } else {
      values_.write(s, first, rows, x.as<float>());
    }
    run_batch(x, out.as<float>() + first * output_.sample.numel());
  }
  return out;
}

Samples Predictor::read_csv(const std::string& name, std::string text, std::vector<std::string>* notes) const {
  if (table_ != nullptr) return read_table_samples(name, std::move(text), *table_, notes);
  return read_csv_samples(name, text, input_.dtype == dtypes::int32, notes);
}

Tensor Predictor::predict_csv(const std::string& path, std::vector<std::string>* notes) {
  if (!file_system().exists(path) || file_system().is_directory(path))
    fail_with(ErrorCode::kData, kPredict, path, ": no such file");
  constexpr int64_t kMostBytes = int64_t{1} << 33;
  const std::vector<uint8_t> bytes = read_file(path, kMostBytes);
  return predict(read_csv(path, {bytes.begin(), bytes.end()}, notes).view());
}

void Predictor::save(const std::string& path) {
  const std::lock_guard lock(mutex_);
  require(path != file_.path, "save", path, ": is the file that the model was opened from. Name another one");
  save_model(path, learner_->model(), file_.header);
}

ExportReport Predictor::export_to(const std::string& path, const std::string& format) {
  const std::lock_guard lock(mutex_);
  return export_file(file_, *learner_, choose_export_target(path, format), path);
}

void Predictor::with_learner(const std::function<void(Learner&)>& use) {
  const std::lock_guard lock(mutex_);
  use(*learner_);
}

std::vector<double> Predictor::scores(std::span<const float> outputs) const {
  std::vector<double> y(outputs.begin(), outputs.end());
  if (!output_.probabilities || y.empty()) return y;
  if (output_.task == PredictionTask::kLabels) {
    for (double& z : y) z = 1.0 / (1.0 + std::exp(-z));
    return y;
  }
  const double largest = *std::max_element(y.begin(), y.end());
  double sum = 0;
  for (double& z : y) sum += z = std::exp(z - largest);
  for (double& z : y) z /= sum;
  return y;
}

std::vector<Ranked> Predictor::top(std::span<const float> outputs, int64_t k) const {
  const std::vector<double> y = scores(outputs);
  k = std::clamp<int64_t>(k, 0, std::ssize(y));
  std::vector<int64_t> order(y.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  // Rank by the outputs: different ones may round to the same probability.
  const auto larger = [&](int64_t a, int64_t b) {
    const float x = outputs[static_cast<size_t>(a)], z = outputs[static_cast<size_t>(b)];
    return x != z ? x > z : a < b;
  };
  std::partial_sort(order.begin(), order.begin() + k, order.end(), larger);
  std::vector<Ranked> out;
  for (int64_t i = 0; i < k; ++i)
    out.push_back({order[static_cast<size_t>(i)], y[static_cast<size_t>(order[static_cast<size_t>(i)])]});
  return out;
}

std::vector<Ranked> Predictor::top(const Tensor& outputs, int64_t row, int64_t k) const {
  require(row >= 0 && row < outputs.rows(), kPredict, "top: got row ", row, " of ", outputs.rows());
  return top({outputs.as<float>() + row * outputs.cols(), static_cast<size_t>(outputs.cols())}, k);
}

std::unique_ptr<Predictor> open_model(const std::string& path, std::optional<PredictionTask> task,
                                      CheckpointChoice choice) {
  if (!file_system().is_directory(path)) refuse_foreign(path);
  return std::make_unique<Predictor>(open_file(path, {}, choice), task);
}

}  // namespace bitgrad
