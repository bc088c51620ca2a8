// Machine-readable files of a run folder: metrics.jsonl and summary.json.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bitgrad/base/file.h"
#include "bitgrad/run/trainer.h"

namespace bitgrad {

class Json;

// Size and checksum of what has been written to a file.
struct WrittenSum {
  int64_t bytes = 0;
  uint32_t crc32c = 0;
  friend bool operator==(const WrittenSum&, const WrittenSum&) = default;
};

namespace detail {
class MetricsSink;
}

// Which files are written in addition to metrics.jsonl.
struct MetricsOutputs {
  bool csv = false;                       // results.csv
  std::vector<std::string> metrics = {};  // evaluation columns of results.csv besides the loss
  bool evaluates = false;                 // one CSV row per evaluation; false: per train line
  bool tensorboard = false;               // TensorBoard event files
};

// metrics.jsonl: one JSON object per line.
//   {"event":"train","step","epoch","loss","accuracy","lr","samples_per_s", for ids also "tokens_per_s", "gmacs_per_s"
//     if layers multiply, "mfu" if log.peak is set, "slowest_rank" and "wait" on several ranks},
//   {"event":"eval","split","epoch","step","loss","accuracy", the other metrics that fit the task, "final":true for the
//     test of the best model} and
//   {"event":"quant","step","epoch","layer","part", ...} (quant_monitor.h).
class MetricsLog {
 public:
  // Opens <folder>/metrics.jsonl for appending. Drops lines past `keep_steps`, which a resumed run writes again, and an
  // incomplete last line as left by a killed process (logged as info). Unreadable lines are dropped too, and the start
  // of the file is compared with `saved`, what had been written when the run was saved (0 bytes: unknown). Either kind
  // of damage is logged as a warning, with line numbers, and the original file is kept as metrics.jsonl.damaged (or
  // .damaged.2, ...; none is overwritten). The files in `outputs` are brought in line: results.csv is rewritten from
  // the remaining lines, and a new event file begins that makes readers discard later steps.
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

// Writes summary.json: status (finished, interrupted, failed), best_accuracy, last_accuracy (percent), metric (the one
// that selects the best model), best_value, last_value, best_epoch, best_step, selected_on, ended_by, ended, epochs,
// steps, with quant.phases phase and form_since (TrainOutcome), seconds, state_hash, memory (bytes by kind at the total
// peak, and total_peak); if the run ended with an evaluation, evaluated (split, samples, step) and its metrics; error,
// if any.
void write_summary(const std::string& folder, const TrainOutcome& outcome, const std::string& status,
                   const std::string& error = {});

}  // namespace bitgrad
