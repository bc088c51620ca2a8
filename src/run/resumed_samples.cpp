// Trainer: whether a resumed run reads the samples of the saved one, and how long it is.
#include <algorithm>
#include <cmath>

#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/run/trainer.h"
#include "config/lengths.h"

namespace bitgrad {

std::map<std::string, const Dataset*> Trainer::data_sets() const {
  std::map<std::string, const Dataset*> sets;
  for (const auto& [section, data] :
       {std::pair{"train", train_data_.get()}, {"valid", valid_data_.get()}, {"test", test_data_.get()}})
    if (data != nullptr) sets[section] = data;
  return sets;
}

void Trainer::record_samples() {
  if (!samples_.empty()) return;
  for (const auto& [section, data] : data_sets()) samples_[section] = samples_record(*data);
}

// The sections whose samples differ from the saved run's, each as a part of a sentence.
std::map<std::string, std::string> Trainer::changed_samples(const CheckpointHeader& header) const {
  std::map<std::string, std::string> changed;
  const std::map<std::string, const Dataset*> sets = data_sets();
  for (const auto& [section, saved] : header.counters.data)
    if (!samples_.contains(section))
      changed[section] = concat("data.", section, ": got none, the run has ", to_string(saved));
  for (const auto& [section, now] : samples_) {
    const auto saved = header.counters.data.find(section);
    const bool had = saved != header.counters.data.end();
    if (had && saved->second == now) continue;
    changed[section] = concat("data.", section, " (", sets.at(section)->name(), "): got ", to_string(now),
                              ", the run has ", had ? to_string(saved->second) : "none");
  }
  return changed;
}

// The best model, train.early_stop and schedule plateau forget what was measured on other samples.
void Trainer::forget_measured() {
  const RunCounters fresh;
  counters_.best_accuracy = fresh.best_accuracy;
  counters_.best_value = fresh.best_value;
  counters_.best_epoch = fresh.best_epoch;
  counters_.best_step = fresh.best_step;
  counters_.early_stop_best = fresh.early_stop_best;
  counters_.early_stop_waited = fresh.early_stop_waited;
  counters_.plateau_best = fresh.plateau_best;
  counters_.plateau_waited = fresh.plateau_waited;
}

void Trainer::compare_samples(const CheckpointHeader& header, const std::string& checkpoint, bool use_data) {
  record_samples();
  if (header.counters.data.empty())
    return log(LogLevel::kInfo, concat(checkpoint, " has no record of its samples: whether they changed is not known"));
  const std::map<std::string, std::string> changed = changed_samples(header);
  if (changed.empty()) return;
  const std::string parts = joined(changed, "; ", [](const auto& part) { return part.second; });
  if (!use_data)
    fail_with(ErrorCode::kData, "resume", checkpoint, " was trained on other samples. ", parts,
              ". Restore them, or pass --use-data to continue with these, not bit for bit");
  log(LogLevel::kWarning, concat("resumed with samples other than those of the saved run: not bit for bit. ", parts));
  if (!changed.contains(selected_on())) return;
  forget_measured();
  log(LogLevel::kWarning, concat("the best model is chosen anew, because data.", selected_on(), " changed"));
}

// The epochs before may have had another number of microbatches: those to come count as they are now.
void Trainer::follow_length(const std::string& checkpoint, int64_t done, bool use_data) {
  const int64_t samples = train_data_->epoch_order().samples;
  if (counters_.position > samples) {
    const std::string past =
        concat("position ", counters_.position, " of an epoch is past the ", samples, " samples of data.train");
    if (!use_data)
      fail_with(ErrorCode::kData, "checkpoint", checkpoint, ": ", past, ". Was the run started on other data?");
    log(LogLevel::kWarning, past + ": the run goes on with the next epoch");
    ++counters_.epoch;
    counters_.position = 0;
  }
  if (config_.train.stop.unit != Quantity::Unit::kEpochs) return;
  const int64_t read =
      detail::microbatches_of(counters_.epoch, microbatches_per_epoch_) + counters_.position / config_.batch.micro;
  if (read == done) return;
  total_microbatches_ += done - read;
  log(LogLevel::kWarning, concat("an epoch has ", microbatches_per_epoch_, " microbatches now, and had others: ", done,
                                 " were read to epoch ", counters_.epoch, ", position ", counters_.position,
                                 ". train.stop (", config_.train.stop, ") ends the run after ", total_microbatches_,
                                 "; lengths in epochs of schedule, optim.decay_schedule, optim.momentum_schedule and "
                                 "quant.phases count as if all had been as now"));
}

void Trainer::set_rates() {
  const bool epochs = config_.train.stop.unit == Quantity::Unit::kEpochs;
  const bool other =
      epochs && total_microbatches_ != detail::microbatches_of(config_.train.stop.value, microbatches_per_epoch_);
  if (!other && config_.schedule.name != "plateau") return;
  RunConfig rates = config_;
  if (other) {
    const auto steps = static_cast<double>(total_microbatches_) / static_cast<double>(config_.batch.accumulate());
    rates.train.stop = {std::max<int64_t>(std::llround(steps), 1), Quantity::Unit::kSteps};
    learner_->set_total_steps(rates.train.stop.value);
    learner_->set_rule_factors(rule_factors(rates, microbatches_per_epoch_));
  }
  learner_->set_learning_rates(learning_rates(rates, microbatches_per_epoch_, counters_.plateaus));
}

}  // namespace bitgrad
