// Trainer, except for its loop (trainer_loop.cpp): data, learner, initial values, resume, evaluation.
#include "bitgrad/run/trainer.h"

#include <algorithm>
#include <utility>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/base/text.h"
#include "bitgrad/checkpoint/run_folder.h"
#include "bitgrad/config/resume.h"
#include "bitgrad/nn/module.h"
#include "config/lengths.h"
#include "data/split_samples.h"
#include "run/initial_values.h"
#include "run/model_warnings.h"
#include "run/run_parts.h"
#include "train/averages.h"
#include "train/evaluation.h"
#include "train/phases.h"

namespace bitgrad {
namespace {

RunConfig with_rules(RunConfig config) {
  require(!config.quant.budget, "quant.budget",
          "a Trainer gets the rules that a budget became, got the budget. Hint: "
          "Trainer(resolve_budget(config)), bitgrad/tools/budget.h");
  return config;
}

// Whether a setting changes over the whole run (learner.set_total_steps).
bool anneals(const RunConfig& config) {
  const auto is = [](const std::optional<QuantSpec>& c) { return c && c->ste == SteRule::kTanh; };
  const auto are = [&](const std::optional<ActivationQuant>& c) { return c && is(c->spec); };
  bool any = is(config.quant.weights.quant) || are(config.quant.activations);
  for_each_layer(config.layers,
                 [&](const LayerSpec& layer) { any = any || is(layer.weight.quant) || are(layer.activation); });
  const auto of_rules = [&](const PrepareConfig& c) {
    for (const QuantRuleConfig& rule : c.rules)
      any = any || (rule.quant.weights && is(rule.quant.weights->quant)) || are(rule.quant.activations);
  };
  of_rules(config.quant.prepare);
  for (const QuantPhaseConfig& phase : config.quant.phases)
    if (phase.prepare) of_rules(*phase.prepare);
  return any;
}

}  // namespace

Trainer::Trainer(RunConfig config) : Trainer(std::move(config), nullptr, nullptr) {}

Trainer::Trainer(RunConfig config, std::unique_ptr<Dataset> train, std::unique_ptr<Dataset> test,
                 std::unique_ptr<Dataset> valid)
    : config_(with_rules(std::move(config))),
      config_yaml_(to_portable_yaml(config_)),
      train_data_(std::move(train)),
      test_data_(std::move(test)) {
  apply_run_settings(config_);
  const DeviceGuard guard(device_of(config_));
  open_data(std::move(valid));
  detail::check_samples(config_, *train_data_, valid_data_.get(), test_data_.get());
  rules_ = rules_of(config_, {train_data_->target_form(), config_.loss, train_data_->vocabulary()});
  make_learner();
  counters_.selected_on = selected_on();
  if (const auto names = detail::Averages::left_out(learner_->model()); config_.train.ema > 0 && !names.empty())
    log(LogLevel::kWarning, concat("train.ema averages masters, and these have none: ", joined(names),
                                   ". The average has the codes of the run there"));
  for (const TransformConfig& t : config_.data.train.transforms) transforms_.push_back(make_transform(t.name, t.keys));
  place_data();
  microbatches_per_epoch_ = epoch_batches(config_, train_data_->epoch_order().samples).count;
  const Quantity& stop = config_.train.stop;
  const bool epochs = stop.unit == Quantity::Unit::kEpochs;
  const int64_t each = epochs ? microbatches_per_epoch_ : config_.batch.accumulate();
  total_microbatches_ = detail::microbatches_of(stop.value, each);
  require(total_microbatches_ <= detail::kMostMicrobatches, "train.stop", stop, " of ", each,
          " microbatches each: got more than ", detail::kMostMicrobatches, " microbatches. Give a shorter run");
  detail::log_warnings(config_, *train_data_);
  for (const Dataset* d : {valid_data_.get(), test_data_.get()})
    if (d != nullptr) detail::log_all(d->notes());
  if (const std::vector<std::string> names = trained_beside_frozen(learner_->model()); !names.empty())
    log(LogLevel::kWarning, concat("weights.frozen holds the weight of a layer alone: ", joined(names),
                                   " still trains. train.frozen holds whole layers, such as train.frozen: [",
                                   names[0].substr(0, names[0].rfind('.')), ']'));
}

void Trainer::make_learner() {
  learner_ = build_learner(config_, *train_data_);
  learner_->set_recorded(config_.device.graph);
  if (communicator_) learner_->set_communicator(communicator_, config_.ranks.wire);
}

// Splits the validation part off data passed by a program; otherwise open_dataset does so.
void Trainer::open_data(std::unique_ptr<Dataset> valid) {
  const bool given_names = !config_.data.class_names.empty();
  const DataSection& data = config_.data;
  const double fraction = data.valid ? data.valid->fraction : 0;
  const auto seed = static_cast<uint64_t>(config_.run.seed);
  valid_data_ = std::move(valid);
  if (!train_data_) {
    train_data_ = open_dataset(config_, data.train);
    take_counted_classes(config_, *train_data_);
    const auto table = train_data_->table();
    if (data.valid && !valid_data_) valid_data_ = open_dataset(config_, *data.valid, {}, table);
    if (data.test) test_data_ = open_dataset(config_, *data.test, {}, table);
  } else if (!valid_data_ && fraction > 0) {
    std::shared_ptr<const Dataset> all = std::move(train_data_);
    valid_data_ = data::split_samples(all, fraction, seed, data::SplitPart::kValid);
    train_data_ = data::split_samples(all, fraction, seed, data::SplitPart::kTrain);
  } else if (!valid_data_ && data.valid) {
    valid_data_ = open_dataset(config_, *data.valid);
  }
  for (const Dataset* d : {train_data_.get(), valid_data_.get(), test_data_.get()})
    if (d != nullptr && tokenizer_.empty()) tokenizer_ = tokenizer_text(d->tokenizer().get());
  table_ = table_text(train_data_->table().get());
  name_classes();
  detail::require_readable(config_, given_names);
}

void Trainer::name_columns(const std::vector<std::string>& features, std::vector<std::string> targets) {
  constexpr std::string_view kColumns = "columns";
  const Dataset& data = *train_data_;
  require(data.table() == nullptr, kColumns, data.name(), " is a table, whose columns have names");
  require(data.vocabulary() == 0, kColumns, data.name(), ": samples are ids, expected values of columns");
  const std::vector<int64_t> sample = data.sample_shape();
  require(sample == std::vector{std::ssize(features)}, kColumns, "got ", features.size(),
          " names of features for samples ", Shape(sample));
  const TablePlan plan = named_table(features, std::move(targets), data.target_form().shape.numel(), data.classes());
  table_ = table_text(&plan);
}

// Names that the data give are those of the run, as if its configuration had them.
void Trainer::name_classes() {
  if (config_.data.class_names.empty()) config_.data.class_names = train_data_->class_names();
  config_yaml_ = to_portable_yaml(config_);
}

void Trainer::place_data() {
  const std::string& resident = config_.device.resident_data;
  train_resident_ = detail::place_data(resident, "data.train", *train_data_, residence_, !transforms_.empty());
  if (valid_data_) valid_resident_ = detail::place_data(resident, "data.valid", *valid_data_, residence_);
  if (test_data_) test_resident_ = detail::place_data(resident, "data.test", *test_data_, residence_);
}

Trainer::~Trainer() = default;

void Trainer::start() {
  if (std::exchange(started_, true)) return;
  record_samples();
  counters_.data = samples_;
  if (config_.adapters && config_.init_from.empty())
    throw config_error_at(config_, config_.adapters->mark,
                          "adapters freeze every other weight at its first value: give the trained model in "
                          "model.init_from");
  if (config_.init_from.empty()) return;
  const DeviceGuard guard(learner_->device());
  init_note_ = detail::take_initial_values(config_, train_data_.get(), *learner_);
}

void Trainer::resume(const std::string& checkpoint, bool use_data) {
  const DeviceGuard guard(learner_->device());
  const CheckpointHeader header = read_checkpoint_header(checkpoint);
  if (header.counters.average)
    fail_with(ErrorCode::kData, "resume", checkpoint, " holds the average of a run's weights (train.ema): its moments ",
              "belong to others. Resume from the checkpoint beside it, or begin a run with model.init_from");
  for (const auto& [section, data] : data_sets()) require_same_tokenizer(header, checkpoint, *data);
  const auto take = [&] {
    counters_ = header.counters;
    compare_samples(header, checkpoint, use_data);
    counters_.data = samples_;
    const int64_t done = header.microbatch + header.skipped.microbatches;
    follow_length(checkpoint, done, use_data);
    if (done > total_microbatches_)
      fail_with(ErrorCode::kData, "checkpoint", checkpoint, ": microbatch ", done, " is past the ", total_microbatches_,
                " of the run (train.stop ", config_.train.stop, ")");
    enter_phase_of(header, checkpoint, *learner_);
    load_checkpoint(checkpoint, *learner_);
    if (done < total_microbatches_) detail::reopen_window(learner_->train_state());
  };
  const RunCounters counters = counters_;
  const int64_t total = total_microbatches_;
  try {
    take();
  } catch (...) {  // as if it had not been tried: a run that begins now is a new one
    counters_ = counters;
    total_microbatches_ = total;
    make_learner();
    throw;
  }
  started_ = true;
  counters_.selected_on = selected_on();
  if (counters_.metric != (rules_.best.metric == "accuracy" ? "" : rules_.best.metric)) counters_.best_value.reset();
  set_rates();
  compare_run(header, checkpoint);
  if (table_.empty()) table_ = header.table;
  if (!header.table.empty() && header.table != table_)
    log(LogLevel::kWarning, "the columns of the table have other names or other plans than in the saved run");
  if (bits_mode() == BitsMode::kFast && header.kernel_hash != kernel_table_hash())
    log(LogLevel::kWarning,
        "resumed with kernels other than those of the saved run: not bit for bit (run.bits: strict does not depend on "
        "the machine)");
}

// Warns if the configuration differs from the saved run's, ignoring device.* and train.early_stop. If only train.stop
// differs, logs that, and why the run is then not bit for bit the longer one, if it is not.
void Trainer::compare_run(const CheckpointHeader& header, const std::string& checkpoint) const {
  if (header.config == config_yaml_) return;
  RunConfig saved = parse_config(header.config, checkpoint, {}, {.plugins = ConfigSource::Plugins::kLoaded});
  saved.device = config_.device;
  if (samples_ == header.counters.data) take_sample_paths(config_, saved);
  const Quantity stop = std::exchange(saved.train.stop, config_.train.stop);
  saved.train.early_stop = config_.train.early_stop;
  if (to_portable_yaml(saved) != config_yaml_)
    return log(LogLevel::kWarning, "resumed with a configuration other than that of the saved run: not bit for bit");
  if (stop == config_.train.stop) return;
  std::string why;
  saved.train.stop = stop;
  const auto differ = [&](const auto& was, const auto& now) {
    for (int64_t step = 0; step < header.step; ++step)
      if (was(step) != now(step)) return true;
    return false;
  };
  if (differ(learning_rates(saved, microbatches_per_epoch_), learning_rates(config_, microbatches_per_epoch_)))
    why = concat("schedule ", config_.schedule.name, " ends at train.stop");
  if (differ(rule_factors(saved, microbatches_per_epoch_), rule_factors(config_, microbatches_per_epoch_)))
    why = concat("optim.decay_schedule ", config_.optim.decay_schedule.name, " or optim.momentum_schedule ",
                 config_.optim.momentum_schedule.name, " ends at train.stop");
  if (anneals(config_)) why = "rule tanh is annealed until train.stop";
  if (header.microbatch % config_.batch.accumulate() != 0) why = "the last window of the shorter run was not full";
  log(why.empty() ? LogLevel::kInfo : LogLevel::kWarning,
      concat("train.stop is now ", config_.train.stop, " instead of ", stop,
             why.empty() ? "" : concat(": not bit for bit a run that began so, because ", why)));
}

bool Trainer::stops_early() const {
  const std::optional<EarlyStopConfig>& stop = config_.train.early_stop;
  return stop && counters_.early_stop_best && counters_.early_stop_waited >= stop->patience &&
         learner_->phase() >= last_form();
}

int64_t Trainer::last_form() const {
  const int64_t accumulate = config_.batch.accumulate();
  const int64_t steps = (total_microbatches_ + accumulate - 1) / accumulate;
  const std::vector<QuantPhase>& phases = learner_->phases();
  int64_t last = 0;
  while (last + 1 < std::ssize(phases) && phases[static_cast<size_t>(last + 1)].from < steps) ++last;
  return learner_->train_state().phases->form_start(last);
}

void Trainer::begin_form() {
  const std::optional<double> best = best_value();
  log(LogLevel::kInfo,
      concat("the model has another form from phase ", learner_->phase(), " on: the best model",
             config_.train.early_stop ? " and the patience of train.early_stop start" : " starts", " anew",
             best ? concat("; before, the best ", rules_.best.metric, " was ", *best, " at step ", counters_.best_step)
                  : ""));
  forget_measured();
}

bool Trainer::ended() const {
  return !counters_.evaluation_due && (done_microbatches() >= total_microbatches_ || stops_early());
}

std::optional<double> Trainer::best_value() const {
  if (rules_.best.metric != "accuracy") return counters_.best_value;
  return counters_.best_accuracy < 0 ? std::nullopt : std::optional(counters_.best_accuracy);
}

std::optional<Evaluation> Trainer::evaluate_on(const std::string& section, const Stop& stop, const OutputHook& hook) {
  const bool valid = section == "valid", test = section == "test";
  return detail::evaluate(*learner_,
                          valid  ? *valid_data_
                          : test ? *test_data_
                                 : *train_data_,
                          config_.train.eval.batch,
                          (valid  ? valid_resident_
                           : test ? test_resident_
                                  : train_resident_)
                              .get(),
                          INT64_MAX, stop, hook, {communicator_.get()});
}

Evaluation Trainer::evaluate_held_out() {
  start();
  return *evaluate_on(held_out(), {});
}

std::optional<Evaluation> Trainer::evaluate_training_part(const Stop& stop) {
  constexpr int64_t kTrainedPerEvaluated = 16;
  const int64_t trained = learner_->state().microbatch * config_.batch.micro;
  return detail::evaluate(*learner_, *train_data_, config_.batch.micro, train_resident_.get(),
                          trained / kTrainedPerEvaluated, stop, {}, {communicator_.get()});
}

}  // namespace bitgrad
