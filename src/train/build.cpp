// From a configuration to a learner: layers, optimizer, schedule, data sets.
#include <algorithm>
#include <cmath>

#include "bitgrad/nn/layers.h"
#include "bitgrad/optim/schedule.h"
#include "bitgrad/train/trainer.h"
#include "train/config/specs.h"
#include "train/lengths.h"
#include "train/phases.h"

namespace bitgrad {
namespace {

using Modules = std::vector<std::shared_ptr<Module>>;

// Optimizer steps of a length; epochs need not be whole steps when windows run across them.
int64_t to_steps(const Quantity& q, int64_t microbatches_per_epoch, int64_t accumulate) {
  if (q.unit == Quantity::Unit::kSteps) return q.value;
  return std::llround(static_cast<double>(detail::microbatches_of(q.value, microbatches_per_epoch)) /
                      static_cast<double>(accumulate));
}

ScheduleSpec schedule_spec(const RunConfig& config, int64_t microbatches_per_epoch) {
  const ScheduleConfig& c = config.schedule;
  const auto steps = [&](const Quantity& q) { return to_steps(q, microbatches_per_epoch, config.batch.accumulate()); };
  ScheduleSpec spec;
  spec.name = c.name;
  spec.every = std::max<int64_t>(steps(c.every), 1);
  spec.factor = c.factor > 0 ? c.factor : 1.0;
  spec.gamma = c.gamma > 0 ? c.gamma : 1.0;
  spec.final = c.final;
  spec.warmup = steps(c.warmup);
  spec.total = std::max<int64_t>(steps(config.train.stop), 1);
  check_schedule(spec);
  return spec;
}

// Where a phase was written; without phases, and for a first one that they fill: the keys of quant.
SourceMark phase_mark(const RunConfig& config, int64_t phase) {
  const auto& phases = config.quant.phases;
  const bool of_quant = phases.empty() || (phase == 0 && !phases[0].prepare && config.quant.prepare != PrepareConfig{});
  return of_quant ? config.quant.prepare.mark : phases.at(static_cast<size_t>(phase)).mark;
}

// What `use` refuses is an error at this mark, or at that of the phase.
template <typename Use>
auto at_mark(const RunConfig& config, SourceMark mark, Use use) {
  try {
    return use();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kUsage) throw;
    const auto* phase = dynamic_cast<const PhaseError*>(&e);
    throw config_error_at(config, phase ? phase_mark(config, phase->phase()) : mark, e.what());
  }
}

// What one sample of the data is.
struct Samples {
  int64_t features = 0, vocabulary = 0;
  DType dtype() const { return vocabulary > 0 ? dtypes::int32 : dtypes::fp32; }
};

// Before a layer of `features` inputs is made: the file holds the numbers of its matrix. Vectors are as long as a side
// of one, and all features come to the matrix of a linear layer at last.
void check_form(const FileForm& form, const LayerSpec& spec, size_t index, int64_t features) {
  const auto wrong = [&](const auto&... parts) {
    fail_with(ErrorCode::kData, "checkpoint", form.path, ": ", parts...);
  };
  const std::string path = concat(kModelRoot, '.', index, ".weight");
  if (spec.kind != "linear" && spec.kind != "embedding") {
    if (features / 8 > form.bytes)
      wrong("layer ", index, " (", spec.kind, ") of its configuration has ", features, " inputs, the file holds ",
            form.bytes, " bytes of tensors");
    return;
  }
  const Shape shape = spec.kind == "linear" ? Shape{spec.out, features} : Shape{spec.num, spec.dim};
  const auto found = form.parameters.find(path);
  if (found == form.parameters.end()) wrong("holds nothing for parameter '", path, "' ", shape, " of this model");
  if (found->second != shape) wrong("parameter '", path, "' is ", found->second, ", the model has ", shape);
}

Modules build_layers(const RunConfig& config, const Samples& samples, const FileForm* form) {
  Modules modules;
  TensorMeta meta;
  meta.features = samples.features;
  meta.dtype = samples.dtype();
  meta.training = false;  // modes of the backward may need codes that prepare makes: plan asks for them
  for (const LayerConfig& layer : config.layers)
    meta = at_mark(config, layer.mark, [&] {
      require(layer.kind != "embedding" || layer.num >= samples.vocabulary, "embedding", "num: got ", layer.num,
              ", expected at least ", samples.vocabulary, ", the number of different ids in the data");
      const LayerSpec spec = config::layer_spec(layer);
      if (form != nullptr) check_form(*form, spec, modules.size(), meta.features);
      modules.push_back(make_layer(spec, meta.features));
      return modules.back()->plan(meta);
    });
  return modules;
}

const LayerConfig& last_linear(const RunConfig& config) {
  const auto last = std::find_if(config.layers.rbegin(), config.layers.rend(),
                                 [](const LayerConfig& layer) { return layer.kind == "linear"; });
  ensure(last != config.layers.rend(), "config", "a model without a linear layer");
  return *last;
}

// Layer by layer, so that one that does not fit is found where it stands; then the whole, with the data's classes.
void plan(const RunConfig& config, Learner& learner, const Modules& modules, const Samples& samples, int64_t classes,
          bool trains) {
  for (const bool training : {true, false}) {
    TensorMeta meta;
    meta.rows = training ? config.batch.micro : config.train.eval.batch;
    meta.features = samples.features;
    meta.dtype = samples.dtype();
    meta.training = training;
    for (size_t i = 0; i < modules.size(); ++i)
      meta = at_mark(config, config.layers[i].mark, [&] { return modules[i]->plan(meta); });
  }
  at_mark(config, last_linear(config).out_mark, [&] {
    learner.plan(samples.features, classes, config.batch.micro, config.train.eval.batch, samples.dtype(), trains);
    return 0;
  });
}

void set_phases(const RunConfig& config, Learner& learner, int64_t per_epoch, bool trains) {
  at_mark(config, config.quant.prepare.mark, [&] {
    std::vector<QuantPhase> phases = quant_phases(config, per_epoch);
    // What is evaluated has forms without steps: how long an epoch of its run was is not known.
    for (size_t i = 0; i < phases.size() && !trains; ++i) phases[i].from = static_cast<int64_t>(i);
    if (!phases.empty()) learner.set_phases(std::move(phases));
    return 0;
  });
}

std::unique_ptr<Learner> build(const RunConfig& config, const Samples& samples, int64_t classes, int64_t train_size,
                               bool trains, const FileForm* form = nullptr) {
  const int64_t per_epoch = (train_size + config.batch.micro - 1) / config.batch.micro;
  const ScheduleSpec schedule = schedule_spec(config, per_epoch);
  const double lr = config.optim.lr;
  const Modules modules = build_layers(config, samples, form);
  auto learner = std::make_unique<Learner>(
      std::make_shared<Sequential>(modules), find_loss(config.loss), config::optimizer_spec(config.optim),
      RequantPolicy{config.batch.accumulate(), config.quant.requantize_every},
      [schedule, lr](int64_t step) { return scheduled_rate(schedule, lr, step); },
      static_cast<uint64_t>(config.run.seed));
  learner->set_total_steps(schedule.total);
  set_phases(config, *learner, per_epoch, trains);
  plan(config, *learner, modules, samples, classes, trains);
  return learner;
}

}  // namespace

std::unique_ptr<Dataset> open_dataset(const RunConfig& config, const DatasetConfig& section) {
  DatasetSpec spec;
  spec.format = section.format;
  spec.images = section.images;
  spec.labels = section.labels;
  spec.file = section.file;
  spec.context = section.context;
  spec.test_fraction = section.test_fraction;
  spec.root = config.data.root;
  spec.split = section.split;
  spec.size = section.size;
  spec.classes = section.classes;
  spec.seed = static_cast<uint64_t>(section.seed);
  spec.affine = {static_cast<float>(config.data.affine[0]), static_cast<float>(config.data.affine[1])};
  return make_dataset(spec);
}

std::vector<QuantPhase> quant_phases(const RunConfig& config, int64_t microbatches_per_epoch) {
  const PrepareSpec base = config::prepare_spec(config.quant.prepare);
  std::vector<QuantPhase> phases;
  for (const QuantPhaseConfig& c : config.quant.phases) {
    QuantPhase& phase = phases.emplace_back();
    phase.from = to_steps(c.from, microbatches_per_epoch, config.batch.accumulate());
    phase.mode = config::quant_mode(c);
    if (c.prepare) phase.spec = config::prepare_spec(*c.prepare);
  }
  if (base.empty()) return phases;
  if (phases.empty()) phases.emplace_back();
  if (!phases[0].spec) phases[0].spec = base;
  return phases;
}

std::unique_ptr<Learner> build_learner(const RunConfig& config, int64_t features, int64_t classes, int64_t train_size,
                                       int64_t vocabulary) {
  return build(config, {features, vocabulary}, classes, train_size, /*trains=*/true);
}

std::unique_ptr<Learner> build_evaluator(const RunConfig& config, const Dataset& data, const FileForm* form) {
  return build(config, {data.features(), data.vocabulary()}, std::max(data.classes(), last_linear(config).out),
               data.size(), /*trains=*/false, form);
}

std::unique_ptr<Learner> load_evaluator(const RunConfig& config, const Dataset& data, const std::string& file) {
  const FileForm form = file_form(file);
  std::unique_ptr<Learner> learner = build_evaluator(config, data, &form);
  if (form.kind == "model") {
    learner->convert();
    load_model(file, learner->model());
  } else {
    detail::enter_phase_of(read_checkpoint_header(file), file, *learner);
    load_checkpoint(file, *learner);
  }
  return learner;
}

}  // namespace bitgrad
