#include "open_file.h"

#include <algorithm>

#include "bitgrad/nn/layer_kind.h"
#include "bitgrad/train/model_record.h"
#include "bitgrad/train/plugin.h"
#include "bitgrad/train/run_folder.h"

namespace bitgrad::cli {
namespace {

// Stands for data that are not there: the form of a sample alone.
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

// Stands for the configuration of a file that no run wrote: what is not about the model.
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
  // The configuration first: it loads the plugins whose kinds the record names.
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
    return open_model(file.path, find_loss(file.config.loss, file.config.loss_keys), file.config.train.eval.batch);
  if (data != nullptr) return load_evaluator(file.config, *data, file.path);
  return load_evaluator(file.config, FormOfData(file.input), file.path);
}

void add_plugin_option(Arguments& args, std::vector<std::string>& paths) {
  args.option("--plugin", paths, "a plugin that the file needs, if its path has changed; repeatable").repeatable();
}

void load_named_plugins(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) load_plugin(path);
}

std::vector<std::string> with_data_root(std::vector<std::string> overrides, const std::string& data) {
  if (data.empty()) return overrides;
  std::string quoted;
  for (const char c : data) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  overrides.push_back("data.root=\"" + quoted + '"');
  return overrides;
}

std::unique_ptr<Dataset> data_of(const OpenedFile& file, const std::vector<std::string>& overrides) {
  const auto names_data = [](const std::string& o) { return o.starts_with("data.t"); };
  require(
      file.of_run || std::any_of(overrides.begin(), overrides.end(), names_data), "data", file.path,
      " was not written by a run, so it names no data set: pass one, such as 'data.test={format: digits, size: 1000}'");
  // Training data are not needed, unless there are no others.
  auto data = open_dataset(file.config, file.config.data.test ? *file.config.data.test : file.config.data.train,
                           tokenizer_of(file.header, file.path));
  require_same_tokenizer(file.header, file.path, *data);
  return data;
}

std::unique_ptr<Dataset> text_of(const OpenedFile& file, const std::string& text, int64_t stride) {
  DatasetSpec spec;
  spec.of_model = tokenizer_of(file.header, file.path);
  require(spec.of_model != nullptr && file.input.ids > 0 && file.input.sample.rank() == 1, "eval",
          "--text: ", file.path,
          " has no tokenizer: it was not trained on a text of format tokens, or by an older program");
  spec.format = "tokens";
  spec.file = text;
  spec.context = file.input.sample.numel();
  spec.split = "test";
  spec.whole = true;
  spec.keys["stride"] = stride;
  return make_dataset(spec);
}

std::string best_place(const RunCounters& counters, const RunConfig& config) {
  const bool steps = config.train.stop.unit == Quantity::Unit::kSteps && counters.best_step > 0;
  return steps ? concat("at step ", counters.best_step) : concat("at epoch ", counters.best_epoch);
}

std::string describe(const OpenedFile& file) {
  const CheckpointHeader& h = file.header;
  std::string text = concat(file.kind, ' ', file.path, ": ", file.config.run.name, ", seed ", h.seed, ", step ", h.step,
                            ", epoch ", h.counters.epoch);
  const size_t phases = file.config.quant.phases.size();
  if (phases > 1) text += concat(", phase ", h.phase, " of 0 .. ", phases - 1);
  if (h.counters.best_value)
    text += concat(", best ", h.counters.metric, ' ', *h.counters.best_value, ' ', best_place(h.counters, file.config));
  else if (h.counters.best_accuracy >= 0)
    text += concat(", best ", h.counters.best_accuracy, " % ", best_place(h.counters, file.config));
  return text;
}

}  // namespace bitgrad::cli
