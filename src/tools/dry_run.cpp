#include "bitgrad/tools/dry_run.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "bitgrad/base/error.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/export/export.h"
#include "bitgrad/run/trainer.h"
#include "bitgrad/tools/budget.h"
#include "data/split_samples.h"
#include "run/model_warnings.h"
#include "train/evaluation.h"

namespace bitgrad {
namespace {

constexpr int64_t kMostExported = 2000000;  // parameters of models that are converted only to ask the exports
constexpr int64_t kBatches = 4;             // per evaluation: more than are read ahead

DryRun::Data described(const Dataset& data, const std::string& name) {
  return {name, data.epoch_order().samples, Shape(data.sample_shape()), data.dtype(), {}};
}

// The first batches of an evaluation; further ones use the same memory.
std::unique_ptr<Dataset> some_batches(std::unique_ptr<Dataset> data, int64_t batch) {
  const int64_t samples = std::min(batch * kBatches, data->size());
  return samples < data->size() ? data::first_samples(std::move(data), samples) : std::move(data);
}

// Starts a phase at every step, so that each form of the model is measured, and evaluates while the training batches
// are in memory.
RunConfig short_of(RunConfig config) {
  for (size_t i = 0; i < config.quant.phases.size(); ++i)
    config.quant.phases[i].from = {static_cast<int64_t>(i), Quantity::Unit::kSteps};
  config.train.eval.every = {1, Quantity::Unit::kSteps};
  if (config.log.quantization) config.log.quantization = Quantity{1, Quantity::Unit::kSteps};
  return config;
}

// Waits until the thread that reads ahead has filled its buffers, as it soon would in a longer run.
void wait_for_batches() {
  using namespace std::chrono_literals;
  constexpr int kMostPolls = 400;
  int64_t before = -1;
  for (int polls = 0, quiet = 0; polls < kMostPolls && quiet < 10; ++polls) {
    const int64_t now = memory_now()[MemoryKind::kBatch];
    quiet = now == before ? quiet + 1 : 0;
    before = now;
    std::this_thread::sleep_for(2ms);
  }
}

// What a run would warn of in each of its phases. Ranges of inputs that an earlier phase observes have values by then.
void warn_of_forms(Learner& learner, bool inputs, std::vector<std::string>& warnings) {
  std::vector<std::string> found = detail::form_warnings(learner.model(), inputs);
  bool observed = false;
  for (int64_t i = 1; i < std::ssize(learner.phases()); ++i) {
    const QuantMode& before = learner.phases()[static_cast<size_t>(i - 1)].mode;
    observed = observed || (before.observers && before.quantization != QuantSwitch::kFrozen);
    learner.enter_phase(i);
    Module& model = learner.model();
    for (std::string& warning : observed ? detail::sign_warnings(model, inputs) : detail::form_warnings(model, inputs))
      if (std::find(found.begin(), found.end(), warning) == found.end()) found.push_back(std::move(warning));
  }
  warnings.insert(warnings.end(), found.begin(), found.end());
}

// `train`: data for the final evaluation if there is nothing else to evaluate, as in a run.
void run_steps(Trainer& trainer, int64_t steps, const Dataset* train) {
  TrainHooks hooks;
  hooks.on_tick = [&, train](const TrainEvent&) {
    wait_for_batches();
    const int64_t micro = trainer.config().batch.micro;
    if (train != nullptr) detail::evaluate(trainer.learner(), *train, micro, nullptr, micro);
  };
  hooks.on_quant = [](const QuantEvent&) {};
  hooks.stop_requested = [&] {
    return trainer.learner().state().step >= steps ? StopRequest::kInterrupt : StopRequest::kNone;
  };
  trainer.run("", hooks);
}

// Asks each target, of the model after its few steps.
std::vector<std::pair<std::string, std::string>> exports_of(Learner& learner, const std::string& name) {
  std::vector<std::pair<std::string, std::string>> out;
  const std::optional<ModelRecord> record = model_record(learner);
  if (!record || !current_device().is_cpu()) return out;
  learner.convert();
  for (const ExportTarget& target : export_targets()) {
    const bool language = target.holds == ExportTarget::Holds::kDecoder;
    if ((language && learner.input()->ids == 0) || target.holds == ExportTarget::Holds::kTensors) continue;
    std::string why;
    try {
      const std::string path = concat(name, target.ending);
      const ExportReport report =
          target.write({.model = &learner.model(), .spec = &record->model}, path, {.dry_run = true});
      for (const ExportedLayer& l : report.layers)
        if (why.empty() && l.fate == ExportedTensor::Fate::kRefused) why = concat(l.layer, ": ", l.reason);
      for (const ExportedTensor& t : report.tensors)
        if (why.empty() && t.fate == ExportedTensor::Fate::kRefused) why = concat(t.parameter, ": ", t.reason);
    } catch (const Error& error) {
      why = error.what();
      why = why.substr(0, why.find('\n'));
    }
    out.emplace_back(target.name, why);
  }
  return out;
}

}  // namespace

DryRun dry_run(RunConfig config, bool measure, int64_t ranks) {
  check_for_ranks(config, ranks);
  reset_memory_peaks();
  apply_run_settings(config);
  const DeviceGuard guard(device_of(config));
  DryRun out;
  std::unique_ptr<Dataset> train = open_dataset(config, config.data.train), valid, test;
  const Dataset* const read = train.get();
  out.train = described(*train, train->name());
  if (const std::shared_ptr<const TablePlan> table = train->table()) out.train.about = table->about;
  take_counted_classes(config, *train);
  const bool read_bytes = detail::never_negative(config, *train);
  const auto open = [&](const std::optional<DatasetConfig>& section, std::unique_ptr<Dataset>& data) {
    if (!section) return std::optional<DryRun::Data>();
    data = open_dataset(config, *section, {}, read->table());
    for (const std::string& note : data->notes()) out.warnings.push_back(note);
    const DryRun::Data found = described(*data, data->name());
    data = some_batches(std::move(data), config.train.eval.batch);
    return std::optional(found);
  };
  out.valid = open(config.data.valid, valid);
  out.test = open(config.data.test, test);
  for (std::string& warning : detail::run_warnings(config, *train)) out.warnings.push_back(std::move(warning));
  const int64_t accumulate = config.batch.accumulate();
  const int64_t micro = epoch_batches(config, out.train.samples).count;
  out.steps_per_epoch = (micro + accumulate - 1) / accumulate;
  const auto least = static_cast<int64_t>(config.quant.phases.size()) + 1;
  config.origin.warnings.clear();  // already in out.warnings
  Trainer trainer(resolve_budget(measure ? short_of(std::move(config)) : std::move(config)), std::move(train),
                  std::move(test), std::move(valid));
  out.steps = (trainer.total_microbatches() + accumulate - 1) / accumulate;
  trainer.start();
  TextWriter table;
  print_layer_table(table, trainer.learner().model());
  out.table = table.str();
  out.layers = layer_table(trainer.learner().model());
  out.rule_macs = trainer.learner().optimizer().macs();
  if (ranks > 1) out.traffic = trainer.learner().optimizer().traffic(ranks, trainer.config().ranks.wire);
  if (!measure) {  // a run logs them itself
    warn_of_forms(trainer.learner(), read_bytes, out.warnings);
    return out;
  }
  run_steps(trainer, std::max<int64_t>(least, 2), out.test || out.valid ? nullptr : read);
  out.peak = memory_at_peak();
  if (out.layers.parameters <= kMostExported) out.exports = exports_of(trainer.learner(), "model");
  return out;
}

}  // namespace bitgrad
