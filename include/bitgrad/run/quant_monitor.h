// QuantMonitor: reports on low-bit training while it runs, one event per layer. Reads codes, scales and masters and
// never changes a bit of the training. docs/quantization_reports.md.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/run/quant_statistics.h"
#include "bitgrad/train/learner.h"

namespace bitgrad {

struct QuantEvent {
  int64_t step = 0, epoch = 0;
  std::string layer = {};  // path of the weight without ".weight", or of the input's quantizer without ".input"
  std::string part = {};   // "weight", "input", or "quantize" (a quantize layer)
  std::string dtype = {}, scheme = {}, granularity = {};
  QuantStatistics statistics = {};
  // Weights only. Flips and drift are relative to the codes at this step: that of the last report, or a later one if
  // those codes are unknown (the run was resumed, or the weight became low-bit). nullopt: no reference yet.
  std::optional<int64_t> since = {};
  std::optional<double> flip_rate = {};    // fraction of codes that differ
  std::optional<double> scale_drift = {};  // mean relative change of the scales
  int64_t watched = 0;                     // number of consecutive requantizations observed before this report
  std::optional<double> flips_per_requantization = {};  // fraction of codes, mean over the observed ones
  std::optional<double> oscillating = {};  // fraction of codes reversed at least once; needs 2 observations
  std::optional<double> oscillation = {};  // reversals per code and requantization; needs 2 observations
};
// One line of JSON: {"event":"quant","step":..., ...}. Keys: docs/quantization_reports.md.
std::string to_json(const QuantEvent& event);

// Layer and part of every weight and activation quantizer, keyed by the path of the parameter or quantizer. A low-bit
// parameter outside quantizable layers counts as a layer of its own.
struct QuantPlace {
  std::string layer = {}, part = {};
};
std::map<std::string, QuantPlace> quant_places(Module& model);

// Runs one batch x [n, sample...] in evaluation mode and returns the statistics of each active activation quantizer, in
// order of execution.
std::vector<QuantEvent> activation_events(Learner& learner, const Tensor& x);

class QuantMonitor {
 public:
  // The current codes become the reference. `window`: number of requantizations before a report that are watched for
  // oscillation.
  explicit QuantMonitor(Learner& learner, int64_t window = 16);

  // Call on a step boundary, with the microbatches left until the next report. Starts watching once that is within the
  // window.
  void expect(int64_t microbatches);
  // Call after every optimizer step.
  void stepped();
  // Returns the current events and resets the counts. x [n, sample...] is a batch for the activation quantizers;
  // undefined: weights only.
  std::vector<QuantEvent> report(int64_t epoch, const Tensor& x = {});

 private:
  struct Weight {
    Parameter* parameter;
    Tensor codes;  // codes at step `since`
    std::shared_ptr<const QuantParams> params;
    int64_t since;
    std::optional<CodeWatch> watch;
  };
  void follow();
  void watch_all();
  void keep(Weight& weight) const;
  QuantEvent event_of(Weight& weight, int64_t epoch) const;

  Learner& learner_;
  int64_t window_, phase_ = -1;
  bool watching_ = false;
  std::map<std::string, QuantPlace> places_;
  std::map<std::string, Weight> weights_;
  std::vector<std::string> order_;
};

}  // namespace bitgrad
