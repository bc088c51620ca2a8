// Registrations that a plugin makes before it fails.
#pragma once

#include "bitgrad/bitgrad.h"
#include "bitgrad/config/plugin.h"
#include "bitgrad/task/metric.h"

inline bitgrad::LayerKind layer_kind_named(const std::string& name) {
  bitgrad::LayerKind kind;
  kind.name = name;
  kind.doc = "of a test";
  kind.keys = {{.name = "depth", .range = "[1, 8]", .standard = "2", .doc = "of a test"}};
  kind.make = [](const bitgrad::LayerSpec&) -> std::shared_ptr<bitgrad::Module> { return nullptr; };
  return kind;
}

inline void register_some(const std::string& prefix, const std::string& key = "parts") {
  using namespace bitgrad;
  register_layer(layer_kind_named(prefix + "_layer"));
  LossKind loss;
  loss.name = prefix + "_loss";
  loss.make = [](const Attributes&) { return [](const Var& y, const Tensor&) { return sum(y); }; };
  register_loss(loss);
  Metric metric;
  metric.name = prefix + "_metric";
  metric.fits = [](const MetricTask&) { return true; };
  metric.value = [](const MetricTask&, const StepResult&) { return 1.0; };
  register_metric(metric);
  DatasetFormat format;
  format.name = prefix + "_data";
  format.keys = {{.name = key, .range = "[1, 7]", .standard = "3", .doc = "of a test"}};
  format.create = [](const DatasetSpec&) -> std::unique_ptr<Dataset> { return nullptr; };
  register_dataset(format);
}
