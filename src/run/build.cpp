// Builds a learner from a configuration: layers, optimizer, schedule, data sets.
#include <algorithm>
#include <cmath>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/nn/adapter.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/nn/module.h"
#include "bitgrad/optim/schedule.h"
#include "bitgrad/run/build.h"
#include "config/choices.h"
#include "config/lengths.h"
#include "config/specs.h"
#include "run/load.h"
#include "train/averages.h"
#include "train/phases.h"
#include "train/train_state.h"

namespace bitgrad {
namespace {

// Converts a length to optimizer steps. An epoch need not be a whole number of steps, since windows run across epochs.
int64_t to_steps(const Quantity& q, int64_t microbatches_per_epoch, int64_t accumulate) {
  if (q.unit == Quantity::Unit::kSteps) return q.value;
  return std::llround(static_cast<double>(detail::microbatches_of(q.value, microbatches_per_epoch)) /
                      static_cast<double>(accumulate));
}

ScheduleSpec schedule_spec(const RunConfig& config, const ScheduleConfig& c, int64_t microbatches_per_epoch,
                           const std::vector<int64_t>& plateaus) {
  const auto steps = [&](const Quantity& q) { return to_steps(q, microbatches_per_epoch, config.batch.accumulate()); };
  ScheduleSpec spec{c};
  spec.every = std::max<int64_t>(steps(c.every), 1);
  for (const Quantity& q : c.at) spec.at.push_back(steps(q));
  if (c.name == "plateau") spec.at = plateaus;
  spec.cooldown = std::max<int64_t>(steps(c.cooldown), 1);
  spec.warmup = steps(c.warmup);
  spec.total = std::max<int64_t>(steps(config.train.stop), 1);
  check_schedule(spec);
  return spec;
}

std::function<float(int64_t)> rates_of(const RunConfig& config, const ScheduleConfig& schedule,
                                       int64_t microbatches_per_epoch, const std::vector<int64_t>& plateaus,
                                       double lr) {
  try {
    const ScheduleSpec spec = schedule_spec(config, schedule, microbatches_per_epoch, plateaus);
    return [spec, lr](int64_t step) { return scheduled_rate(spec, lr, step); };
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kUsage) throw;
    throw config_error_at(config, schedule.mark, e.what());
  }
}

OptimizerSpec optimizer_spec(const RunConfig& config) {
  OptimizerSpec spec = config.optim.spec;
  spec.log_norm = config.log.gradient_norm;
  return spec;
}

// Where a phase is written in the configuration: at quant if there are no phases, or if the first one takes its recipe
// from quant.
SourceMark phase_mark(const RunConfig& config, int64_t phase) {
  const auto& phases = config.quant.phases;
  const bool of_quant = phases.empty() || (phase == 0 && !phases[0].prepare && config.quant.prepare != PrepareConfig{});
  return of_quant ? config.quant.prepare.mark : phases.at(static_cast<size_t>(phase)).mark;
}

// Turns a usage Error of `use` into a ConfigError at `mark`, or at the phase or layer that it names.
template <typename Use>
auto at_mark(const RunConfig& config, SourceMark mark, Use use) {
  try {
    return use();
  } catch (const LayerError& e) {
    const LayerSpec* const layer = config::layer_at(config.layers, e.layer());
    if (e.code() != ErrorCode::kUsage || layer == nullptr) throw;
    const LayerOrigin& at = origin_of(*layer);
    throw config_error_at(config, at.mark,
                          at.block.empty() ? e.message() : concat(e.message(), " (in ", at.block, ')'));
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kUsage) throw;
    const auto* phase = dynamic_cast<const PhaseError*>(&e);
    throw config_error_at(config, phase ? phase_mark(config, phase->phase()) : mark, e.what());
  }
}

// Checks, before the model allocates memory, that the file has values for all its parameters.
void check_file(const FileForm& form, Module& model) {
  const auto wrong = [&](const auto&... parts) {
    fail_with(ErrorCode::kData, "checkpoint", form.path, ": ", parts...);
  };
  for (const auto& [path, parameter] : model.parameters_at(kModelRoot)) {
    const auto found = form.parameters.find(path);
    const Shape& shape = parameter->shape();
    if (found == form.parameters.end()) wrong("has no values for parameter '", path, "' ", shape, " of this model");
    if (found->second != shape) wrong("parameter '", path, "' is ", found->second, ", the model has ", shape);
  }
}

// Where the number of outputs is written: key `out` of the last layer that has one.
SourceMark output_mark(const RunConfig& config) {
  SourceMark mark = origin_of(config.layers.back()).mark;
  for_each_layer(config.layers, [&](const LayerSpec& layer) {
    const std::map<std::string, SourceMark>& marks = origin_of(layer).marks;
    if (const auto out = marks.find("out"); out != marks.end()) mark = out->second;
  });
  return mark;
}

void set_phases(const RunConfig& config, Learner& learner, int64_t per_epoch, bool trains) {
  at_mark(config, config.quant.prepare.mark, [&] {
    std::vector<QuantPhase> phases = quant_phases(config, per_epoch);
    // An evaluated model gets its phases at steps 0, 1, ...: the length of an epoch of its run is not known.
    for (size_t i = 0; i < phases.size() && !trains; ++i) phases[i].from = static_cast<int64_t>(i);
    if (!phases.empty()) learner.set_phases(std::move(phases));
    return 0;
  });
}

// What a model is built for. outputs: number of scores the data need; an evaluated model may return more.
struct Task {
  Form input;
  std::optional<TargetForm> target = {};
  int64_t outputs = 0;
  int64_t samples = 0;
  bool trains = true;
  const FileForm* file = nullptr;
  LearnerUse use = LearnerUse::kTrain;
};

std::unique_ptr<Learner> build(const RunConfig& config, const Task& task) {
  const EpochBatches batches = task.samples > 0 ? epoch_batches(config, task.samples) : EpochBatches{};
  const int64_t per_epoch = batches.count;
  const SourceMark outputs = output_mark(config);
  PlanSpec plan;
  plan.input = task.input;
  plan.outputs = task.outputs;
  plan.target = task.target;
  plan.train_samples = config.batch.micro;
  // Of a data set the smallest batch is known; a program that feeds its own batches meets the check of each.
  plan.least_samples = task.trains && task.target ? batches.least : 0;
  plan.eval_samples = config.train.eval.batch;
  plan.trains = task.trains;
  const std::shared_ptr<Sequential> model = at_mark(config, outputs, [&] {
    ModelSpec spec = model_spec(config, task.input);
    spec.input.training =
        false;  // Learner::plan asks for training instead: backward modes may need codes that prepare adds
    auto described = make_model(spec);
    if (!task.trains) plan.outputs = std::max(plan.outputs, described->plan(spec.input).features());
    return described;
  });
  at_mark(config, config.train.frozen_mark, [&] {
    freeze_layers(*model, config.train.frozen);
    return 0;
  });
  if (config.adapters)
    at_mark(config, config.adapters->mark, [&] {
      add_adapters(*model, *config.adapters);
      return 0;
    });
  if (task.file != nullptr) check_file(*task.file, *model);
  auto learner = std::make_unique<Learner>(
      model, find_loss(config.loss, config.loss_keys), optimizer_spec(config),
      RequantPolicy{config.batch.accumulate(), config.quant.requantize_every},
      task.trains ? learning_rates(config, per_epoch) : [](int64_t) { return 0.0f; },
      static_cast<uint64_t>(config.run.seed), task.use);
  if (task.trains) learner->set_rule_factors(rule_factors(config, per_epoch));
  MetricKeys metrics = config.train.metrics;
  for (const std::string& name :
       {config.train.best.metric, config.train.early_stop ? config.train.early_stop->metric : "",
        config.schedule.name == "plateau" ? config.schedule.metric : ""})
    if (!name.empty()) metrics.try_emplace(name);
  learner->train_state().metric_keys = std::move(metrics);
  if (task.trains && config.train.ema > 0)
    learner->train_state().average = std::make_unique<detail::Averages>(config.train.ema);
  learner->set_total_steps(std::max<int64_t>(to_steps(config.train.stop, per_epoch, config.batch.accumulate()), 1));
  learner->set_window_sum(config.batch.sum);
  learner->set_observer_update(config.quant.observer_update);
  set_phases(config, *learner, per_epoch, task.trains);
  at_mark(config, outputs, [&] {
    learner->plan(plan);
    return 0;
  });
  return learner;
}

}  // namespace

Device device_of(const RunConfig& config) {
  return config.device.kind == "cuda" ? Device::cuda(static_cast<int>(config.device.index)) : Device::cpu();
}

void apply_run_settings(const RunConfig& config) {
  if (config.device.threads) set_num_threads(static_cast<int>(*config.device.threads));
  set_bits_mode(config.run.bits == "strict" ? BitsMode::kStrict : BitsMode::kFast);
}

std::function<float(int64_t)> learning_rates(const RunConfig& config, int64_t microbatches_per_epoch,
                                             const std::vector<int64_t>& plateaus) {
  return rates_of(config, config.schedule, microbatches_per_epoch, plateaus, config.optim.spec.base_lr);
}

std::function<RuleFactors(int64_t)> rule_factors(const RunConfig& config, int64_t microbatches_per_epoch) {
  const auto factors = [&](const ScheduleConfig& schedule) {
    return rates_of(config, schedule, microbatches_per_epoch, {}, 1);
  };
  return
      [decay = factors(config.optim.decay_schedule), momentum = factors(config.optim.momentum_schedule)](int64_t step) {
        return RuleFactors{decay(step), momentum(step)};
      };
}

LastBatch last_batch_of(const RunConfig& config) { return config.batch.last; }
EpochBatches epoch_batches(const RunConfig& config, int64_t samples) {
  return epoch_batches(samples, config.batch.micro, last_batch_of(config));
}

std::vector<QuantPhase> quant_phases(const RunConfig& config, int64_t microbatches_per_epoch) {
  const PrepareSpec base = config::prepare_spec(config.quant.prepare);
  std::vector<QuantPhase> phases;
  for (const QuantPhaseConfig& c : config.quant.phases) {
    QuantPhase& phase = phases.emplace_back();
    phase.from = to_steps(c.from, microbatches_per_epoch, config.batch.accumulate());
    phase.mode = c.mode;
    if (c.prepare) phase.spec = config::prepare_spec(*c.prepare);
  }
  if (base.empty()) return phases;
  if (phases.empty()) phases.emplace_back();
  if (!phases[0].spec) phases[0].spec = base;
  return phases;
}

ModelSpec model_spec(const RunConfig& config, const Form& input) {
  ModelSpec spec;
  spec.input = input;
  spec.input.values = config.values;
  spec.layers = config.layers;
  bool axes = !config.flat;
  for_each_layer(config.layers, [&](const LayerSpec& layer) { axes = axes || find_layer_kind(layer.kind)->axes; });
  if (!axes) spec.input.sample = {input.sample.numel()};
  return spec;
}

Form input_form(const Dataset& data) {
  Form form;
  form.sample = Shape(data.sample_shape());
  form.dtype = data.dtype();
  form.ids = data.vocabulary();
  return form;
}

std::unique_ptr<Learner> build_learner(const RunConfig& config, const Form& input, int64_t outputs,
                                       int64_t train_size) {
  Task task;
  task.input = model_spec(config, input).input;
  task.outputs = outputs;
  task.samples = train_size;
  return build(config, task);
}

std::unique_ptr<Learner> build_learner(const RunConfig& config, const Dataset& data) {
  Task task;
  task.input = model_spec(config, input_form(data)).input;
  task.target = data.target_form();
  task.outputs = task.target->outputs();
  task.samples = data.epoch_order().samples;
  std::unique_ptr<Learner> learner = build(config, task);
  learner->set_document_end(data.document_end());
  return learner;
}

namespace {

std::unique_ptr<Learner> evaluator(const RunConfig& config, const Dataset& data, const FileForm* form, LearnerUse use) {
  Task task;
  task.input = model_spec(config, input_form(data)).input;
  task.outputs = data.classes();
  task.samples = data.epoch_order().samples;
  task.trains = false;
  task.file = form;
  task.use = use;
  std::unique_ptr<Learner> learner = build(config, task);
  learner->set_document_end(data.document_end());
  return learner;
}

}  // namespace

std::unique_ptr<Learner> build_evaluator(const RunConfig& config, const Dataset& data, const FileForm* form) {
  return evaluator(config, data, form, LearnerUse::kTrain);
}

std::unique_ptr<Learner> load_evaluator(const RunConfig& config, const Dataset& data, const std::string& file,
                                        LearnerUse use) {
  return detail::load_evaluator(config, data, checkpoint::open_verified(file), use);
}

std::unique_ptr<Learner> detail::load_evaluator(const RunConfig& config, const Dataset& data,
                                                const checkpoint::OpenFile& file, LearnerUse use) {
  const FileForm form = checkpoint::file_form(*file);
  std::unique_ptr<Learner> learner = evaluator(config, data, &form, use);
  enter_phase_of(checkpoint::read_checkpoint_header(*file), file->path(), *learner);
  if (form.kind == SavedKind::kModel) {
    learner->convert();
    checkpoint::load_model(file, learner->model());
  } else {
    checkpoint::load_checkpoint(file, *learner);
  }
  return learner;
}

}  // namespace bitgrad
