// Reports of what low-bit training does, while it does it: one event a layer. Reads codes, scales and masters and never
// changes a bit of the training. docs/quantization_reports.md.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/train/learner.h"
#include "bitgrad/train/quant_statistics.h"

namespace bitgrad {

struct QuantEvent {
  int64_t step = 0, epoch = 0;
  std::string layer = {};  // path; that of the weight without ".weight", that of an input's quantizer without ".input"
  std::string part = {};   // "weight", "input", or "quantize": a quantize layer
  std::string dtype = {}, scheme = {}, granularity = {};
  QuantStatistics statistics = {};
  // Weights. Flips and drift are counted from the codes of this step on: that of the report before, or a later one
  // where its codes are not known (a run was resumed, the weight became low-bit). none: nothing is known yet.
  std::optional<int64_t> since = {};
  std::optional<double> flip_rate = {};    // part of the codes that differ
  std::optional<double> scale_drift = {};  // mean relative change of the scales
  int64_t watched = 0;                     // consecutive requantizations before this report that were watched
  std::optional<double> flips_per_requantization = {};  // part of the codes, mean of those watched
  std::optional<double> oscillating = {};               // part of the codes that were reversed at least once
  std::optional<double> oscillation = {};               // reversals a code and requantization
};
// One line of JSON: {"event":"quant","step":..., ...}; docs/quantization_reports.md has the keys.
std::string to_json(const QuantEvent& event);

// Layer and part of every weight and every quantizer of activations, by the path of the parameter or quantizer. A
// low-bit parameter that belongs to no quantizable layer is one of its own.
struct QuantPlace {
  std::string layer = {}, part = {};
};
std::map<std::string, QuantPlace> quant_places(Module& model);

// Statistics of what the active quantizers of activations make of one batch x [n, features] in evaluation mode, in
// order.
std::vector<QuantEvent> activation_events(Learner& learner, const Tensor& x);

class QuantMonitor {
 public:
  // Counting starts with the codes of now. `window`: requantizations before a report that are watched for oscillation.
  explicit QuantMonitor(Learner& learner, int64_t window = 16);

  // On a step boundary: the next report is due after so many microbatches. Begins to watch when that is near.
  void expect(int64_t microbatches);
  // After every optimizer step.
  void stepped();
  // The events of now; counting starts anew. x [n, features]: a batch for the activations; undefined: weights alone.
  std::vector<QuantEvent> report(int64_t epoch, const Tensor& x = {});

 private:
  struct Weight {
    Parameter* parameter;
    Tensor codes;  // at step `since`
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
