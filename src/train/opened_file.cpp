#include "bitgrad/train/opened_file.h"

#include <algorithm>

#include "bitgrad/nn/layer_kind.h"
#include "bitgrad/train/model_record.h"
#include "bitgrad/train/run_folder.h"
#include "bitgrad/train/trainer.h"

namespace bitgrad {
namespace {

// A data set without samples, which provides the form of a sample only.
class FormOfData final : public Dataset {
 public:
  explicit FormOfData(const Form& form) : form_(form) {}
  std::string name() const override { return "no data"; }
  int64_t size() const override { return 1; }
  std::vector<int64_t> sample_shape() const override { return form_.sample.dims(); }
  int64_t classes() const override { return 0; }
  int64_t vocabulary() const override { return form_.ids; }
  void sample(int64_t, float*, int32_t*) const override { fail("data", "this command reads no data"); }

 private:
  Form form_;
};

// Features of a sample, for files without a model record: layers before the first linear one keep the number of
// features, except that an embedding multiplies it by dim.
int64_t features_of(const std::string& file, const RunConfig& config) {
  int64_t dim = 1;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    const LayerKind& kind = *find_layer_kind(layer.kind);
    if (kind.ids) dim = std::max<int64_t>(layer.attributes.integer("dim"), 1);
    if (kind.product) return shape_in_file(file, concat(kModelRoot, '.', i, ".weight")).cols() / dim;
  }
  fail_with(ErrorCode::kData, "checkpoint", file, ": its configuration has no linear layer");
}

// Number of distinct input ids; 0 if the model reads values.
int64_t vocabulary_of(const RunConfig& config) {
  const LayerConfig& first = config.layers.at(0);
  return find_layer_kind(first.kind)->ids ? first.attributes.integer("num") : 0;
}

// Placeholder for everything that is not about the model, for files that no run wrote.
constexpr const char* kNoRun =
    "version: 1\nrun: {name: model}\ndata: {train: {format: digits, size: 1}}\nmodel: {layers: [{linear: {out: 1}}]}\n"
    "optim: {name: sgd, lr: 0.1}\ntrain: {stop: 1 steps}\n";

}  // namespace

OpenedFile open_file(const std::string& target, const std::vector<std::string>& overrides) {
  OpenedFile out;
  out.path = checkpoint_of(target);
  out.kind = file_kind(out.path);
  out.header = read_checkpoint_header(out.path);
  out.of_run = !out.header.config.empty();
  // Parse the configuration first: this loads the plugins that define the kinds in the record.
  const ConfigSource source{true, remembered_root(out.path), ConfigSource::Plugins::kLoaded};
  out.config = parse_config(out.of_run ? out.header.config : kNoRun, out.path, overrides, source);
  const std::optional<ModelRecord> record = read_model_record(out.path);
  if (!out.of_run && !record)
    fail_with(ErrorCode::kData, "checkpoint", out.path,
              ": has neither a configuration nor a record of its model: only the program that wrote it can open it");
  if (record) {
    out.input = record->model.input;
  } else {
    out.input.sample = {features_of(out.path, out.config)};
    out.input.ids = vocabulary_of(out.config);
  }
  return out;
}

std::unique_ptr<Learner> load_file(const OpenedFile& file, const Dataset* data) {
  if (!file.of_run)
    return load_evaluator(file.path, find_loss(file.config.loss, file.config.loss_keys), file.config.train.eval.batch);
  if (data != nullptr) return load_evaluator(file.config, *data, file.path);
  return load_evaluator(file.config, FormOfData(file.input), file.path);
}

}  // namespace bitgrad
