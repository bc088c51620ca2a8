// What a run checks before its first step: that its data sets fit together and the loss, that its metrics fit the
// targets, and that its files could be opened again.
#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/text.h"
#include "data/augment.h"
#include "run/run_parts.h"

namespace bitgrad {
namespace {

bool fits(const std::string& loss, const TargetForm& target) {
  return target.classes > 0 ? loss_takes_classes(loss) : loss_takes_values(loss);
}

std::vector<std::string> losses_for(const TargetForm& target) {
  std::vector<std::string> names = loss_names();
  std::erase_if(names, [&](const std::string& name) { return !fits(name, target); });
  return names;
}

std::string kind_of(const TargetForm& target) {
  const bool classes = target.classes > 0;
  if (target.shape.rank() == 0) return classes ? "one class per sample" : "one value per sample";
  return concat(classes ? "classes " : "values ", target.shape, " per sample");
}

void check_targets(const RunConfig& config, const Dataset& train) {
  const TargetForm target = train.target_form();
  const bool classes = target.classes > 0;
  require(fits(config.loss, target), "loss", config.loss, " expects ", classes ? "values" : "classes",
          " as targets, data.train (", train.name(), ") has ", kind_of(target),
          ". Losses for these: ", joined(losses_for(target)));
  const int64_t names = std::ssize(config.data.class_names);
  require(names == 0 || names == target.outputs(), "data", "class_names: got ", names, " names, data.train (",
          train.name(), ") has ", target.outputs(), classes ? " classes" : " values");
}

// Checks that a model of data.train can be evaluated on the data of `section`.
void check_like(const Dataset& train, const std::string& section, const Dataset& other) {
  require(other.dtype() == train.dtype(), "data", "data.train (", train.name(), ") has ", train.dtype(), ", ", section,
          " (", other.name(), ") ", other.dtype());
  require(other.features() == train.features(), "data", "data.train has samples of ", train.features(), " values, ",
          section, " of ", other.features());
  require(other.classes() <= train.classes(), "data", section, " has ", other.classes(), " classes, data.train ",
          train.classes(),
          ". If samples of data.train lack classes that the model is to have, write data.train.classes: ",
          other.classes(), ", where its format has that key");
  const std::vector<std::string> names = train.class_names(), theirs = other.class_names();
  if (!names.empty() && !theirs.empty() && names != theirs)
    fail_with(ErrorCode::kData, "data", section, " (", other.name(),
              ") has other classes than data.train: ", joined(theirs), ", expected ", joined(names),
              ", in this order. bitgrad data pack --classes TRAIN.classes.txt packs pictures in the order of others");
  const TargetForm target = train.target_form(), given = other.target_form();
  require(given.shape == target.shape && given.dtype() == target.dtype(), "data", "data.train (", train.name(),
          ") has targets of ", kind_of(target), ", ", section, " (", other.name(), ") of ", kind_of(given));
}

void check_tokenizers(const Dataset& train, const std::string& section, const Dataset& other) {
  const std::shared_ptr<const Tokenizer> a = train.tokenizer(), b = other.tokenizer();
  if (a == nullptr || b == nullptr) return;
  if (const std::string parts = tokenizer_difference(*a, *b); !parts.empty())
    fail_with(ErrorCode::kData, "tokenizer", "data.train (", train.name(), ") and ", section, " (", other.name(),
              ") differ: ", parts);
}

std::string fitting_metrics(const MetricTask& task) {
  std::string names;
  for (const Metric* m : metrics())
    if (m->fits(task)) names += concat(names.empty() ? "" : ", ", m->name);
  return names;
}

std::string does_not_fit(const std::string& name, const RunConfig& config, const MetricTask& task) {
  const Metric* const metric = find_metric(name);
  return concat(name, " does not support loss ", config.loss, " on ", kind_of(task.target),
                metric == nullptr || metric->doc.empty() ? "" : concat(" (", metric->doc, ')'),
                ". Metrics of this run: ", fitting_metrics(task));
}

// Metrics that train.metrics asks to follow must fit the targets, and their keys too.
void check_followed(const RunConfig& config, const MetricTask& task) {
  for (const auto& [name, keys] : config.train.metrics) {
    const Metric* const metric = find_metric(name);
    require(metric == nullptr || !metric->follow || metric->fits(task), "train.metrics",
            does_not_fit(name, config, task));
  }
  followers_of(task, config.train.metrics);
}

// The rule for metric `name`, set by `key` under train.
BestRule rule_of(const RunConfig& config, const std::string& key, const std::string& name, const std::string& mode,
                 const MetricTask& task, SourceMark mark) {
  const Metric* const metric = find_metric(name);
  if (metric == nullptr || !metric->fits(task))
    throw config_error_at(config, mark, concat(key, ": ", does_not_fit(name, config, task)));
  if (metric->measure && measures_of(task, config.train.metrics).count(name) == 0)
    throw config_error_at(config, mark, concat(key, ": ", name, " has a required key; set it in train.metrics.", name));
  return {name, mode.empty() ? metric->more_is_better : mode == "max"};
}

// The rule of train.best; by default the metric that fits the targets.
BestRule best_rule(const RunConfig& config, const MetricTask& task) {
  const BestConfig& best = config.train.best;
  const bool one_class = task.target.classes > 0 && task.target.shape.rank() == 0;
  return rule_of(config, "train.best",
                 !best.metric.empty() ? best.metric
                 : one_class          ? "accuracy"
                                      : "loss",
                 best.mode, task, best.mark);
}

// The rule set by `section` (train.early_stop, schedule); without a metric of its own, that of train.best.
template <typename Section>
BestRule rule_beside_best(const RunConfig& config, const std::string& key, const Section& section,
                          const MetricTask& task, const BestRule& best) {
  const bool own = !section.metric.empty();
  BestRule rule = rule_of(config, key, own ? section.metric : best.metric, section.mode, task, section.mark);
  if (!own && section.mode.empty()) rule.more_is_better = best.more_is_better;
  return rule;
}

// Throws Error if the augmentation does not fit the data.
void check_augment(const Dataset& train, const Augment& augment) {
  const data::AugmentedImages images = data::augmented_images(train, augment, 0, 0);
  require(augment.crop_pad < std::min(images.rows, images.columns), "data.train.augment", "crop_pad: got ",
          augment.crop_pad, " pixels for images of ", images.rows, " x ", images.columns,
          ", expected fewer than the shorter side: a crop could show none of the image.");
}

}  // namespace

void detail::check_samples(const RunConfig& config, const Dataset& train, const Dataset* valid, const Dataset* test) {
  check_targets(config, train);
  for (const auto& [section, data] : {std::pair{"data.valid", valid}, {"data.test", test}}) {
    if (data == nullptr) continue;
    check_like(train, section, *data);
    check_tokenizers(train, section, *data);
  }
  if (const Augment& augment = config.data.train.augment; augment.given()) check_augment(train, augment);
}

Trainer::Rules Trainer::rules_of(const RunConfig& config, const MetricTask& task) {
  check_followed(config, task);
  Rules rules{.best = best_rule(config, task)};
  if (const auto& stop = config.train.early_stop)
    rules.early_stop = rule_beside_best(config, "train.early_stop", *stop, task, rules.best);
  if (config.schedule.name == "plateau")
    rules.plateau = rule_beside_best(config, "schedule", config.schedule, task, rules.best);
  return rules;
}

void detail::require_readable(const RunConfig& config, bool given_names) {
  std::string why;
  try {
    const RunConfig back =
        parse_config(to_yaml(config), "config.yaml", {}, {.plugins = ConfigSource::Plugins::kLoaded});
    if (to_portable_yaml(back) == to_portable_yaml(config) &&
        (config.data.root.empty() || back.data.root == std::filesystem::absolute(config.data.root).lexically_normal()))
      return;
    why = concat("it would be read back otherwise: ",
                 joined(config_differences(back, config), "; ", &ConfigDifference::key));
  } catch (const ConfigError& error) {
    why = error.diagnostics().empty() ? error.what() : error.diagnostics().front().message;
  }
  for (size_t i = 0; i < config.data.class_names.size() && !given_names; ++i)
    if (const std::string& name = config.data.class_names[i]; printable(name) != name)
      why = concat("class ", i, " is named '", printable(name.substr(0, 80)),
                   "', expected UTF-8 without control characters");
  const bool names = !given_names && why.find("data.root") == std::string::npos && !config.data.class_names.empty();
  if (names)
    fail_with(ErrorCode::kData, "data.train", "its ", config.data.class_names.size(),
              " class names cannot be kept in the configuration of the run, and no command could open it: ",
              printable(why), ". Rename the classes, or number them");
  fail("config", "a run of it could not be opened again: ", printable(why));
}

}  // namespace bitgrad
