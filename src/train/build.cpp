// From a configuration to a learner: layers, optimizer, schedule, data sets.
#include <algorithm>
#include <cmath>

#include "bitgrad/nn/layers.h"
#include "bitgrad/optim/schedule.h"
#include "bitgrad/train/trainer.h"
#include "train/config/specs.h"

namespace bitgrad {
namespace {

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

std::shared_ptr<Sequential> build_model(const RunConfig& config, int64_t features) {
  auto model = std::make_shared<Sequential>();
  TensorMeta meta;
  meta.features = features;
  for (const LayerConfig& layer : config.layers) {
    try {
      auto module = make_layer(config::layer_spec(layer), meta.features);
      meta = module->plan(meta);
      model->append(std::move(module));
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kUsage) throw;
      throw config_error_at(config, layer.mark, e.what());
    }
  }
  return model;
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
  auto learner = std::make_unique<Learner>(
      build_model(config, features), find_loss(config.loss), config::optimizer_spec(config.optim),
      RequantPolicy{config.batch.accumulate(), config.quant.requantize_every},
      [schedule, lr](int64_t step) { return scheduled_rate(schedule, lr, step); },
      static_cast<uint64_t>(config.run.seed));
  learner->set_total_steps(schedule.total);
  try {
    learner->plan(features, classes, config.batch.micro, config.train.eval.batch);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kUsage) throw;
    throw config_error_at(config, config.layers.back().mark, e.what());
  }
  return learner;
}

}  // namespace bitgrad
