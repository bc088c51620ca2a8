#include "run/warnings.h"

#include <algorithm>

#include "bitgrad/base/log.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/base/text.h"
#include "bitgrad/run/trainer.h"
#include "config/lengths.h"

namespace bitgrad::detail {
namespace {

void warn_of_batch(const RunConfig& config, int64_t samples, std::vector<std::string>& warnings) {
  const BatchSection& batch = config.batch;
  if (batch.global <= samples) return;
  const int64_t per_epoch = epoch_batches(config, samples).count;
  const double epochs = static_cast<double>(batch.accumulate()) / static_cast<double>(per_epoch);
  warnings.push_back(concat("batch.global (", batch.global, ") is larger than data.train (", samples,
                            batch.accumulate() == 1
                                ? " samples): each optimizer step uses all of them, an epoch is one step"
                                : concat(" samples): each optimizer step uses ", epochs, " epochs"),
                            ". Set batch.global to at most ", samples));
}

// A short run of a long schedule is right, so a named time that never comes is no error. A period (every) names none.
void warn_of_late(const std::string& path, const ScheduleConfig& c, const RunConfig& config, int64_t samples,
                  std::vector<std::string>& warnings) {
  const auto length = [&](const Quantity& q) {
    const bool steps = q.unit == Quantity::Unit::kSteps;
    return microbatches_of(q.value, steps ? config.batch.accumulate() : epoch_batches(config, samples).count);
  };
  const int64_t end = length(config.train.stop);
  const auto late = [&](const char* key, const Quantity& q) {
    if (length(q) >= end)
      warnings.push_back(concat(path, '.', key, ": ", q, " is not before train.stop (", config.train.stop,
                                "): this run ends without that change of the rate"));
  };
  if (c.name == "multistep")
    for (const Quantity& q : c.at) late("at", q);
}

// Named features alone: pixels at the border of pictures are constant by nature.
void warn_of_constants(const Dataset& train, std::vector<std::string>& warnings) {
  constexpr size_t kShown = 8;
  const std::vector<std::string> names = train.feature_names();
  const StoredSamples stored = train.stored();
  const int64_t samples = train.size(), features = std::ssize(names);
  if (stored.codes == nullptr || stored.form != StoredAs::kFloat || features != train.features() || samples < 2) return;
  const auto* const x = static_cast<const float*>(stored.codes);
  std::vector<std::string> constant;
  for (int64_t j = 0; j < features; ++j) {
    int64_t i = 1;
    while (i < samples && x[i * stored.stride + j] == x[j]) ++i;
    if (i == samples) constant.push_back(names[static_cast<size_t>(j)]);
  }
  if (constant.empty()) return;
  std::string shown;
  for (size_t i = 0; i < std::min(constant.size(), kShown); ++i)
    shown += concat(i == 0 ? "" : ", ", printable(constant[i]));
  warnings.push_back(concat(constant.size(), " of ", features, " features have one value in all ", samples,
                            " samples of data.train, so nothing can be learned from them: ", shown,
                            constant.size() > kShown ? " ..." : "", ". data.train.ignore leaves columns out"));
}

}  // namespace

std::vector<std::string> run_warnings(const RunConfig& config, const Dataset& train) {
  std::vector<std::string> warnings = config.origin.warnings;
  warn_of_batch(config, train.epoch_order().samples, warnings);
  warn_of_late("schedule", config.schedule, config, train.epoch_order().samples, warnings);
  warn_of_late("optim.decay_schedule", config.optim.decay_schedule, config, train.epoch_order().samples, warnings);
  for (const std::string& note : train.notes()) warnings.push_back(note);
  warn_of_constants(train, warnings);
  const int cores = available_cores();
  if (config.device.threads && *config.device.threads > cores)
    warnings.push_back(concat("device.threads (", *config.device.threads, ") is more than the ", cores,
                              cores == 1 ? " core" : " cores",
                              " of this process: threads wait for each other. Use auto, or at most ", cores));
  return warnings;
}

void log_warnings(const RunConfig& config, const Dataset& train) {
  for (const std::string& warning : run_warnings(config, train)) log(LogLevel::kWarning, warning);
}

}  // namespace bitgrad::detail
