// Files of a run folder that programs read: metrics.jsonl and summary.json.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bitgrad/base/file.h"
#include "bitgrad/train/trainer.h"

namespace bitgrad {

class Json;

// What a file holds up to its last line.
struct WrittenSum {
  int64_t bytes = 0;
  uint32_t crc32c = 0;
  friend bool operator==(const WrittenSum&, const WrittenSum&) = default;
};

namespace detail {
class MetricsSink;
}

// What is written beside metrics.jsonl.
struct MetricsOutputs {
  bool csv = false;                       // results.csv
  std::vector<std::string> metrics = {};  // its columns of evaluations beside the loss
  bool evaluates = false;                 // a row for each evaluation; else for each train line
  bool tensorboard = false;               // event files
};

// metrics.jsonl: one JSON object a line.
//   {"event":"train","step","epoch","loss","accuracy","lr","samples_per_s", of ids also "tokens_per_s",
//     "gmacs_per_s" where layers multiply, "mfu" under log.peak},
//   {"event":"eval","split","epoch","step","loss","accuracy", and the other metrics that fit the task} and
//   {"event":"quant","step","epoch","layer","part", ...} (quant_monitor.h).
class MetricsLog {
 public:
  // Opens <folder>/metrics.jsonl for appending. Lines past `keep_steps` are dropped first (a resumed run writes them
  // again), and so is a last line without its end, as a killed program leaves one (info in the log).
  // Lines that cannot be read are dropped too, and `saved`, what was written when the run was saved (0 bytes: not
  // known), is compared with what the file begins with: either damage is a warning with the numbers of the lines, and
  // the file as it was is kept as metrics.jsonl.damaged, or .damaged.2 and so on: none is overwritten.
  // Files of `outputs` follow: results.csv is made anew of the lines that stay; a new event file begins, before which
  // readers forget later steps.
  MetricsLog(const std::string& folder, int64_t keep_steps, const WrittenSum& saved = {},
             const MetricsOutputs& outputs = {});
  ~MetricsLog();
  const WrittenSum& written() const { return written_; }
  void write(const TrainEvent& event);
  void write(const EvalEvent& event);
  void write(const QuantEvent& event);
  void flush();

 private:
  void line(const Json& object);
  std::unique_ptr<OutputFile> file_;
  std::vector<std::unique_ptr<detail::MetricsSink>> sinks_;
  WrittenSum written_;
};

// summary.json: best_accuracy, last_accuracy (percent), metric (what picks the best
// model), best_value, last_value, metrics (all of the last step, if it was evaluated), best_epoch, epochs, steps,
// seconds, state_hash, status (finished, interrupted, failed), error, memory (bytes by kind at the total peak, and
// total_peak).
void write_summary(const std::string& folder, const TrainOutcome& outcome, const std::string& status,
                   const std::string& error = {});

}  // namespace bitgrad
