// QuantMonitor: reports on low-bit training while it runs, one event per layer. Reads codes, scales and masters and
// never changes a bit of the training. docs/quantization_reports.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/nn/parameter.h"
#include "bitgrad/train/learner.h"

namespace bitgrad {

// Statistics of low-bit tensors: code usage, saturation, noise, scales, flips and oscillation. Read only. Formulas and
// sources: docs/quantization_reports.md.

// Statistics of one tensor of codes and the values they stand for. nullopt: undefined for the scheme, or the values are
// unknown. Fractions are relative to the number of elements; an empty tensor has none.
struct QuantStatistics {
  int64_t elements = 0;
  // Elements per code, in the order of the dtype's record: qmin .. qmax; -1, +1; or levels 0, 1, ...
  std::vector<int64_t> histogram = {};
  int64_t dead_codes = 0;  // codes of the dtype that no element uses
  double entropy = 0;      // bits per element, 0 .. entropy_limit = log2 of the number of codes
  double entropy_limit = 0;
  std::optional<double> at_ends = {};  // fraction at the smallest or largest code; only dtypes with three or more codes
  std::optional<double> saturated = {};  // fraction whose code before clamping is out of range; only schemes that round
  // Fraction for which the straight-through rule passes a gradient of 1 as a nonzero value.
  std::optional<double> pass = {};
  std::optional<double> sqnr_db = {};  // 10 log10(sum x^2 / sum (x - value)^2); +-infinity if one sum is 0
  struct Scale {
    double least = 0, mean = 0, largest = 0;
  };
  std::optional<Scale> scale = {};  // nullopt: the scheme has no scales
};

// `codes` are canonical with QuantParams; `x`, fp32 of the same shape, holds the values they were made from, or is
// undefined. Rounding is assumed to be to nearest. Throws Error for other tensors.
QuantStatistics quant_statistics(const QuantSpec& spec, const Tensor& codes, const Tensor& x = {});
// Statistics of a low-bit parameter's current codes and scales against its current master, which may have moved since
// the last requantization. Throws Error for a float parameter.
QuantStatistics quant_statistics(const Parameter& parameter);

// One JSON object. Keys: docs/quantization_reports.md.
std::string to_json(const QuantStatistics& statistics);

// Number of elements whose codes differ; scales are ignored. Throws Error unless both are canonical with equal dtype
// and shape.
int64_t count_flips(const Tensor& before, const Tensor& now);
// Mean of abs(now - before) / before over the scales that were not 0. 0 if neither has scales; nullopt if their counts
// differ or all were 0.
std::optional<double> scale_drift(const QuantParams& before, const QuantParams& now);

// Watches the codes of one tensor over consecutive requantizations. A reversal is a change of a code in the opposite
// direction to its previous change (Nagel et al. 2022, arXiv 2203.11086, section 2.3). Keeps a copy of the codes and 3
// bits per element.
class CodeWatch {
 public:
  explicit CodeWatch(const Tensor& codes);
  // Call after each requantization. Throws Error if dtype or shape changed.
  void observe(const Tensor& codes);
  bool matches(const Tensor& codes) const { return codes.dtype() == last_.dtype() && codes.shape() == last_.shape(); }

  int64_t elements() const { return last_.numel(); }
  int64_t observations() const { return observations_; }
  int64_t flips() const { return flips_; }          // changed codes, summed over observations
  int64_t reversals() const { return reversals_; }  // how many of those were reversals
  int64_t reversed() const { return reversed_; }    // elements with at least one reversal

 private:
  Tensor last_, state_;  // state: int64 [blocks of 64 elements, 3]; bit masks: has changed, last went up, was reversed
  int64_t observations_ = 0, flips_ = 0, reversals_ = 0, reversed_ = 0;
};

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
