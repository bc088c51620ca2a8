#include "open_file.h"

#include <algorithm>

#include "bitgrad/nn/layer_kind.h"
#include "bitgrad/train/run_folder.h"

namespace bitgrad::cli {
namespace {

// Stands for data that are not there: the form of a sample alone.
class FormOfData final : public Dataset {
 public:
  FormOfData(int64_t features, int64_t vocabulary) : features_(features), vocabulary_(vocabulary) {}
  std::string name() const override { return "no data"; }
  int64_t size() const override { return 1; }
  std::vector<int64_t> sample_shape() const override { return {features_}; }
  int64_t classes() const override { return 0; }
  int64_t vocabulary() const override { return vocabulary_; }
  void sample(int64_t, float*, int32_t*) const override { fail("data", "this command reads no data"); }

 private:
  int64_t features_, vocabulary_;
};

// What comes before the first linear layer keeps the features; an embedding gives dim for each.
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

// Different ids that the model takes; 0: it takes numbers.
int64_t vocabulary_of(const RunConfig& config) {
  const LayerConfig& first = config.layers.at(0);
  return find_layer_kind(first.kind)->ids ? first.attributes.integer("num") : 0;
}

}  // namespace

OpenedFile open_file(const std::string& target, const std::vector<std::string>& overrides) {
  OpenedFile out;
  out.path = checkpoint_of(target);
  out.kind = file_kind(out.path);
  out.header = read_checkpoint_header(out.path);
  out.config = parse_config(out.header.config, out.path, overrides);
  out.features = features_of(out.path, out.config);
  return out;
}

std::unique_ptr<Learner> load_file(const OpenedFile& file, const Dataset* data) {
  if (data != nullptr) return load_evaluator(file.config, *data, file.path);
  return load_evaluator(file.config, FormOfData(file.features, vocabulary_of(file.config)), file.path);
}

std::string describe(const OpenedFile& file) {
  const CheckpointHeader& h = file.header;
  std::string text = concat(file.kind, ' ', file.path, ": ", file.config.run.name, ", seed ", h.seed, ", step ", h.step,
                            ", epoch ", h.counters.epoch);
  const size_t phases = file.config.quant.phases.size();
  if (phases > 1) text += concat(", phase ", h.phase, " of 0 .. ", phases - 1);
  if (h.counters.best_accuracy >= 0)
    text += concat(", best ", h.counters.best_accuracy, " % at epoch ", h.counters.best_epoch);
  return text;
}

}  // namespace bitgrad::cli
