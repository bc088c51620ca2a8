// From a configuration to a learner: layers, optimizer, schedule, data sets.
#include <algorithm>
#include <cmath>

#include "bitgrad/nn/layers.h"
#include "bitgrad/optim/schedule.h"
#include "bitgrad/train/trainer.h"
#include "train/config/specs.h"

namespace bitgrad {
namespace {

using Modules = std::vector<std::shared_ptr<Module>>;

// Optimizer steps of a length; epochs need not be whole steps when windows run across them.
int64_t to_steps(const Quantity& q, int64_t microbatches_per_epoch, int64_t accumulate) {
  if (q.unit == Quantity::Unit::kSteps) return q.value;
  return std::llround(static_cast<double>(q.value) * static_cast<double>(microbatches_per_epoch) /
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

// What `use` refuses is an error at this mark.
template <typename Use>
auto at_mark(const RunConfig& config, SourceMark mark, Use use) {
  try {
    return use();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kUsage) throw;
    throw config_error_at(config, mark, e.what());
  }
}

Modules build_layers(const RunConfig& config, int64_t features) {
  Modules modules;
  TensorMeta meta;
  meta.features = features;
  for (const LayerConfig& layer : config.layers)
    meta = at_mark(config, layer.mark, [&] {
      modules.push_back(make_layer(config::layer_spec(layer), meta.features));
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
void plan(const RunConfig& config, Learner& learner, const Modules& modules, int64_t features, int64_t classes) {
  for (const bool training : {true, false}) {
    TensorMeta meta;
    meta.rows = training ? config.batch.micro : config.train.eval.batch;
    meta.features = features;
    meta.training = training;
    for (size_t i = 0; i < modules.size(); ++i)
      meta = at_mark(config, config.layers[i].mark, [&] { return modules[i]->plan(meta); });
  }
  at_mark(config, last_linear(config).out_mark, [&] {
    learner.plan(features, classes, config.batch.micro, config.train.eval.batch);
    return 0;
  });
}

}  // namespace

std::unique_ptr<Dataset> open_dataset(const RunConfig& config, const DatasetConfig& section) {
  DatasetSpec spec;
  spec.format = section.format;
  spec.images = section.images;
  spec.labels = section.labels;
  spec.root = config.data.root;
  spec.split = section.split;
  spec.size = section.size;
  spec.classes = section.classes;
  spec.seed = static_cast<uint64_t>(section.seed);
  spec.affine = {static_cast<float>(config.data.affine[0]), static_cast<float>(config.data.affine[1])};
  return make_dataset(spec);
}

std::unique_ptr<Learner> build_learner(const RunConfig& config, int64_t features, int64_t classes, int64_t train_size) {
  const int64_t per_epoch = (train_size + config.batch.micro - 1) / config.batch.micro;
  const ScheduleSpec schedule = schedule_spec(config, per_epoch);
  const double lr = config.optim.lr;
  const Modules modules = build_layers(config, features);
  auto learner = std::make_unique<Learner>(
      std::make_shared<Sequential>(modules), find_loss(config.loss), config::optimizer_spec(config.optim),
      RequantPolicy{config.batch.accumulate(), config.quant.requantize_every},
      [schedule, lr](int64_t step) { return scheduled_rate(schedule, lr, step); },
      static_cast<uint64_t>(config.run.seed));
  learner->set_total_steps(schedule.total);
  plan(config, *learner, modules, features, classes);
  return learner;
}

std::unique_ptr<Learner> build_evaluator(const RunConfig& config, const Dataset& data) {
  return build_learner(config, data.features(), std::max(data.classes(), last_linear(config).out), data.size());
}

}  // namespace bitgrad
