// A run before and beside its loop (trainer_loop.cpp): data, learner, first numbers, resume, evaluation.
#include "bitgrad/train/trainer.h"

#include <algorithm>
#include <utility>

#include "bitgrad/base/log.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/kernels/kernel.h"
#include "bitgrad/train/adapters.h"
#include "bitgrad/train/budget.h"
#include "bitgrad/train/run_folder.h"
#include "bitgrad/train/weight_map.h"
#include "data/augment.h"
#include "train/evaluation.h"
#include "train/examination.h"
#include "train/lengths.h"
#include "train/phases.h"
#include "train/warnings.h"

namespace bitgrad {
namespace {

std::vector<std::string> losses_for(const TargetForm& target) {
  std::vector<std::string> names = loss_names();
  std::erase_if(names, [&](const std::string& name) { return loss_takes_classes(name) != (target.classes > 0); });
  return names;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : ", ") + n;
  return text;
}

RunConfig rules_of_budget(RunConfig config, std::string& table) {
  BudgetPlan plan;
  RunConfig resolved = resolve_budget(std::move(config), &plan);
  table = plan.table;
  return resolved;
}

std::string kind_of(const TargetForm& target) {
  return concat(target.classes > 0 ? "classes " : "values ", target.shape);
}

void check_targets(const RunConfig& config, const Dataset& train, const Dataset* test) {
  const TargetForm target = train.target_form();
  const bool classes = loss_takes_classes(config.loss);
  require(classes == (target.classes > 0), "loss", config.loss, " expects ", classes ? "classes" : "values",
          " as targets, data.train (", train.name(), ") has ", kind_of(target),
          ". Losses for these: ", joined(losses_for(target)));
  const int64_t names = std::ssize(config.data.class_names);
  require(names == 0 || names == target.outputs(), "data", "class_names: got ", names, " names, data.train (",
          train.name(), ") has ", target.outputs(), classes ? " classes" : " values");
  if (test == nullptr) return;
  const TargetForm other = test->target_form();
  require(other.shape == target.shape && other.dtype() == target.dtype(), "data", "data.train (", train.name(),
          ") has targets of ", kind_of(target), ", data.test (", test->name(), ") of ", kind_of(other));
}

// As files hold it.
std::string tokenizer_of_data(const Dataset& train, const Dataset* test) {
  const std::shared_ptr<const Tokenizer> a = train.tokenizer(), b = test == nullptr ? nullptr : test->tokenizer();
  if (a != nullptr && b != nullptr)
    if (const std::string parts = tokenizer_difference(*a, *b); !parts.empty())
      fail_with(ErrorCode::kData, "tokenizer", "data.train (", train.name(), ") and data.test (", test->name(),
                ") differ: ", parts);
  return tokenizer_text(a != nullptr ? a.get() : b.get());
}

// What train.best says, or what fits the targets.
BestRule best_rule(const RunConfig& config, const TargetForm& target) {
  const MetricTask task{target, config.loss};
  const BestConfig& best = config.train.best;
  const bool one_class = target.classes > 0 && target.shape.rank() == 0;
  const std::string name = !best.metric.empty() ? best.metric : one_class ? "accuracy" : "loss";
  const Metric* const metric = find_metric(name);
  std::string fitting;
  for (const Metric* m : metrics())
    if (m->fits(task)) fitting += concat(fitting.empty() ? "" : ", ", m->name);
  if (metric == nullptr || !metric->fits(task))
    throw config_error_at(config, best.mark,
                          concat("train.best: ", name, " does not support loss ", config.loss, " on ", kind_of(target),
                                 ". Metrics of this run: ", fitting));
  if (metric->measure && measures_of(task, config.train.metrics).count(name) == 0)
    throw config_error_at(config, best.mark,
                          concat("train.best: ", name, " has a required key; set it in train.metrics.", name));
  return {name, best.goes.empty() ? metric->more_is_better : best.goes == "up"};
}

// Throws Error where crops and mirror images do not fit the data.
void check_augment(const Dataset& train, const Augment& augment) {
  const data::AugmentedImages images = data::augmented_images(train, augment, 0, 0);
  require(augment.crop_pad < std::min(images.rows, images.columns), "data.train.augment", "crop_pad: got ",
          augment.crop_pad, " pixels for images of ", images.rows, " x ", images.columns,
          ", expected fewer than the shorter side: a crop could show none of the image.");
}

}  // namespace

Device device_of(const RunConfig& config) {
  return config.device.kind == "cuda" ? Device::cuda(static_cast<int>(config.device.index)) : Device::cpu();
}

void apply_run_settings(const RunConfig& config) {
  if (config.device.threads) set_num_threads(static_cast<int>(*config.device.threads));
  set_bits_mode(config.run.bits == "strict" ? BitsMode::kStrict : BitsMode::kFast);
}

Trainer::Trainer(RunConfig config) : Trainer(std::move(config), nullptr, nullptr) {}

Trainer::Trainer(RunConfig config, std::unique_ptr<Dataset> train, std::unique_ptr<Dataset> test)
    : config_(rules_of_budget(std::move(config), budget_table_)),
      config_yaml_(to_portable_yaml(config_)),
      train_data_(std::move(train)),
      test_data_(std::move(test)) {
  apply_run_settings(config_);
  const DeviceGuard guard(device_of(config_));
  if (!train_data_) {
    train_data_ = open_dataset(config_, config_.data.train);
    if (config_.data.test) test_data_ = open_dataset(config_, *config_.data.test);
  }
  if (test_data_)
    require(test_data_->dtype() == train_data_->dtype(), "data", "data.train (", train_data_->name(), ") has ",
            train_data_->dtype(), ", data.test (", test_data_->name(), ") ", test_data_->dtype());
  if (test_data_)
    require(test_data_->features() == train_data_->features(), "data", "data.train has samples of ",
            train_data_->features(), " values, data.test of ", test_data_->features());
  if (test_data_)
    require(test_data_->classes() <= train_data_->classes(), "data", "data.test has ", test_data_->classes(),
            " classes, data.train ", train_data_->classes());
  check_targets(config_, *train_data_, test_data_.get());
  tokenizer_ = tokenizer_of_data(*train_data_, test_data_.get());
  const Augment augment{config_.data.train.augment.crop_pad, config_.data.train.augment.flip};
  if (augment.given()) check_augment(*train_data_, augment);
  best_ = best_rule(config_, train_data_->target_form());
  learner_ = build_learner(config_, *train_data_);
  learner_->set_recorded(config_.device.graph);
  const std::string& resident = config_.device.resident_data;
  for (const TransformConfig& t : config_.data.train.transforms) transforms_.push_back(make_transform(t.name, t.keys));
  train_resident_ = detail::place_data(resident, "data.train", *train_data_, residence_, !transforms_.empty());
  if (test_data_) test_resident_ = detail::place_data(resident, "data.test", *test_data_, residence_);
  microbatches_per_epoch_ = (train_data_->epoch_order().samples + config_.batch.micro - 1) / config_.batch.micro;
  const Quantity& stop = config_.train.stop;
  const bool epochs = stop.unit == Quantity::Unit::kEpochs;
  const int64_t each = epochs ? microbatches_per_epoch_ : config_.batch.accumulate();
  total_microbatches_ = detail::microbatches_of(stop.value, each);
  require(total_microbatches_ <= detail::kMostMicrobatches, "train.stop", stop, " of ", each,
          " microbatches each: got more than ", detail::kMostMicrobatches, " microbatches. Give a shorter run");
  detail::log_warnings(config_, train_data_->epoch_order().samples);
}

Trainer::~Trainer() = default;

void Trainer::start() {
  if (std::exchange(started_, true)) return;
  if (config_.adapters && config_.init_from.empty())
    throw config_error_at(config_, config_.adapters->mark,
                          "adapters freeze every other weight at its first value: give the trained model in "
                          "model.init_from");
  if (config_.init_from.empty()) return;
  const DeviceGuard guard(learner_->device());
  const bool foreign = is_weight_file(config_.init_from);
  require(foreign || (config_.rename.empty() && config_.ignore.empty()), "model", config_.init_from,
          " was written by bitgrad: rename and ignore are for weights of other programs");
  const std::string file = foreign ? config_.init_from : checkpoint_of(config_.init_from);
  const InitFrom found = foreign ? init_from_weights(file, learner_->model(), {config_.rename, config_.ignore})
                                 : init_from(file, learner_->model());
  first_numbers_ = concat("initial values from ", file, ": ", found.taken.size(), " tensors copied");
  if (!found.fresh.empty()) first_numbers_ += "; newly initialized: " + joined(found.fresh);
  if (!found.skipped.empty()) first_numbers_ += "; not used: " + joined(found.skipped);
  if (!config_.adapters || config_.adapters->init_from.empty()) return;
  load_adapters(config_.adapters->init_from, learner_->model());
  first_numbers_ += "; adapters from " + config_.adapters->init_from;
}

void Trainer::resume(const std::string& checkpoint) {
  const DeviceGuard guard(learner_->device());
  const CheckpointHeader header = read_checkpoint_header(checkpoint);
  const int64_t samples = train_data_->epoch_order().samples;
  if (header.counters.position > samples)
    fail_with(ErrorCode::kData, "checkpoint", checkpoint, ": position ", header.counters.position,
              " of an epoch is past the ", samples, " samples of data.train. Was the run started on other data?");
  if (header.microbatch > total_microbatches_)
    fail_with(ErrorCode::kData, "checkpoint", checkpoint, ": microbatch ", header.microbatch, " is past the ",
              total_microbatches_, " of the run (train.stop ", config_.train.stop, ")");
  require_same_tokenizer(header, checkpoint, *train_data_);
  if (test_data_) require_same_tokenizer(header, checkpoint, *test_data_);
  detail::enter_phase_of(header, checkpoint, *learner_);
  load_checkpoint(checkpoint, *learner_);
  started_ = true;
  counters_ = header.counters;
  if (counters_.metric != (best_.metric == "accuracy" ? "" : best_.metric)) counters_.best_value.reset();
  if (!same_run(header.config, checkpoint))
    log(LogLevel::kWarning, "resumed with a configuration other than that of the saved run: not bit for bit");
  if (header.kernel_hash != kernel_table_hash() && bits_mode() == BitsMode::kFast)
    log(LogLevel::kWarning,
        "resumed with kernels other than those of the saved run: not bit for bit (run.bits: strict does not depend on "
        "the machine)");
}

// Whether a saved configuration is this one, but for the device and its threads.
bool Trainer::same_run(const std::string& saved_yaml, const std::string& checkpoint) const {
  if (saved_yaml == config_yaml_) return true;
  RunConfig saved = parse_config(saved_yaml, checkpoint, {}, {.plugins = ConfigSource::Plugins::kLoaded});
  saved.device = config_.device;
  return to_portable_yaml(saved) == config_yaml_;
}

std::optional<double> Trainer::best_value() const {
  if (best_.metric != "accuracy") return counters_.best_value;
  return counters_.best_accuracy < 0 ? std::nullopt : std::optional(counters_.best_accuracy);
}

Evaluation Trainer::evaluate_test() {
  start();
  const bool test = test_data_ != nullptr;
  return detail::evaluate(*learner_, test ? *test_data_ : *train_data_, config_.train.eval.batch,
                          test ? test_resident_.get() : train_resident_.get(), INT64_MAX, examination_.get());
}

Evaluation Trainer::evaluate_training_part() {
  constexpr int64_t kTrainedPerEvaluated = 16;
  const int64_t trained = learner_->state().microbatch * config_.batch.micro;
  return detail::evaluate(*learner_, *train_data_, config_.batch.micro, train_resident_.get(),
                          trained / kTrainedPerEvaluated);
}

}  // namespace bitgrad
