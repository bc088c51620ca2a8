// Files of a run folder that programs read: metrics.jsonl and summary.json.
#pragma once

#include <memory>
#include <string>

#include "bitgrad/base/file.h"
#include "bitgrad/train/trainer.h"

namespace bitgrad {

// metrics.jsonl: one JSON object a line.
//   {"event":"train","step","epoch","loss","accuracy","lr","samples_per_s"},
//   {"event":"eval","split","epoch","step","loss","accuracy"} and
//   {"event":"quant","step","epoch","layer","part", ...} (quant_monitor.h).
class MetricsLog {
 public:
  // Opens <folder>/metrics.jsonl for appending. Lines past `keep_steps` are dropped first (a resumed run writes them
  // again), and so is a last line without its end.
  MetricsLog(const std::string& folder, int64_t keep_steps);
  void write(const TrainEvent& event);
  void write(const EvalEvent& event);
  void write(const QuantEvent& event);
  void flush();

 private:
  void line(const std::string& text);
  std::unique_ptr<OutputFile> file_;
};

// summary.json: best_accuracy, last_accuracy (percent), best_epoch, epochs, steps, seconds, state_hash, status
// (finished, interrupted, failed), error, memory (bytes by kind at the total peak, and total_peak).
void write_summary(const std::string& folder, const TrainOutcome& outcome, const std::string& status,
                   const std::string& error = {});

}  // namespace bitgrad
