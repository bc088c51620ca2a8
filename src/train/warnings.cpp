#include "train/warnings.h"

#include "bitgrad/base/log.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/train/trainer.h"

namespace bitgrad::detail {
namespace {

void warn_of_batch(const RunConfig& config, int64_t samples, std::vector<std::string>& warnings) {
  const BatchSection& batch = config.batch;
  if (batch.global <= samples) return;
  const int64_t per_epoch = epoch_batches(config, samples).count;
  const double epochs = static_cast<double>(batch.accumulate()) / static_cast<double>(per_epoch);
  warnings.push_back(concat("batch.global (", batch.global, ") is larger than data.train (", samples,
                            batch.accumulate() == 1
                                ? " samples): each optimizer step takes all of them, an epoch is one step"
                                : concat(" samples): each optimizer step takes ", epochs, " epochs"),
                            ". Set batch.global to at most ", samples));
}

}  // namespace

std::vector<std::string> run_warnings(const RunConfig& config, int64_t samples) {
  std::vector<std::string> warnings = config.origin.warnings;
  warn_of_batch(config, samples, warnings);
  const int cores = available_cores();
  if (config.device.threads && *config.device.threads > cores)
    warnings.push_back(concat("device.threads (", *config.device.threads, ") is more than the ", cores,
                              cores == 1 ? " core" : " cores",
                              " of this process: threads wait for each other. Use auto, or at most ", cores));
  return warnings;
}

void log_warnings(const RunConfig& config, int64_t samples) {
  for (const std::string& warning : run_warnings(config, samples)) log(LogLevel::kWarning, warning);
}

}  // namespace bitgrad::detail
